"""`asyncq migrate`: bring the database's schema up to this release, or say what is missing."""

import argparse
import sys
from typing import Any

from asyncq.cli import common
from asyncq.db import migrate, rights
from asyncq.release import __version__
from asyncq.worker import ExitCode

__all__ = ["add"]


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "migrate",
        help="create or update the schema",
        description="Apply what is missing, once, however many run this at the same time.",
        allow_abbrev=False,
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--check", action="store_true", help="change nothing; exit with 3 when something is missing")
    instead.add_argument(
        "--sql", action="store_true", help="print the SQL instead of applying it; without a database, all of it"
    )
    common.add_database(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    schema = common.schema_of(options)
    if options.sql:
        dsn = common.find_dsn(options)
        lacking = list(migrate.migrations()) if dsn is None else common.run(_missing(dsn, schema))
        if lacking:
            sys.stdout.write(migrate.script(schema=schema, since=lacking[0].version - 1))
        else:
            print(f"-- schema {schema} is up to date")
        return 0
    dsn = common.dsn_of(options)
    if options.check:
        lacking = common.run(_missing(dsn, schema))
        for step in lacking:
            print(f"missing in schema {schema}: {_shown(step)}")
        if lacking:
            return ExitCode.SCHEMA
        common.run(_fits(dsn, schema))
    else:
        for step in common.run(_migrate(dsn, schema)):
            print(f"applied to schema {schema}: {_shown(step)}")
    print(f"schema {schema} is up to date")
    return 0


async def _missing(dsn: str, schema: str) -> list[migrate.Migration]:
    async with common.explaining(dsn, schema, rights.CHECKS):
        return await migrate.missing(dsn, schema=schema)


async def _migrate(dsn: str, schema: str) -> list[migrate.Migration]:
    async with common.explaining(dsn, schema, rights.MIGRATES):
        return await migrate.migrate(dsn, schema=schema)


async def _fits(dsn: str, schema: str) -> None:
    """Refuse, as a worker would, what a newer release has made of the schema."""
    async with common.connected(dsn, schema, rights.CHECKS) as connection:
        await migrate.check(connection, schema, __version__)


def _shown(step: migrate.Migration) -> str:
    return f"{step.version:04} {step.name}"
