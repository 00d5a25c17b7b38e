"""`asyncq doctor`: is all well with the queue, and if not, what is to be done?"""

import argparse
import json
import time
from dataclasses import asdict
from functools import partial
from typing import Any

import psycopg

from asyncq import diagnosis
from asyncq.cli import common
from asyncq.cli.log import printable
from asyncq.db import doctor, migrate, rights, workers
from asyncq.db.connection import Session, address_of
from asyncq.db.listen import listening
from asyncq.diagnosis import Finding, Level
from asyncq.errors import ConfigurationError, SchemaOutdatedError
from asyncq.release import __version__
from asyncq.worker import ExitCode
from asyncq.worker.trouble import one_line

__all__ = ["add"]

Connection = psycopg.AsyncConnection[Any]

PURPOSES = {
    "worker": rights.WORKS,
    "producer": rights.DEFERS,
    "observer": (*rights.OUTLINES, *rights.EXPLAINS),
}

MOST_QUEUES = 20
"""In so many queues the first job is looked for."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "doctor",
        help="say whether all is well, and what is to be done",
        description="Look at the server, the schema, rights, vacuum, indexes, old transactions, notifications, clocks,"
        " workers and queues. Nothing is changed. Exit code 1 when something fails.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--role",
        choices=tuple(PURPOSES),
        default="observer",
        help="what the role of the DSN is for (default: %(default)s): whether it has the rights for that",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")
    common.add_database(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    found = common.run(_examined(common.dsn_of(options), common.schema_of(options), options.role))
    for each in found:
        if options.json:
            print(json.dumps(asdict(each)))
            continue
        print(printable(f"{each.level:<4}  {each.check:<13}  {each.text}"))
        if each.advice is not None:
            print(printable(f"{'':<21}{each.advice}"))
    return ExitCode.FAILED if any(each.level is Level.FAIL for each in found) else 0


async def _examined(dsn: str, schema: str, role: str) -> list[Finding]:
    async with common.connected(dsn, schema, ()) as connection:
        asked = _here()
        server = await doctor.server(connection, schema)
        found = [*diagnosis.server(server), *diagnosis.clock((asked + _here()) / 2 - server.now)]
        try:
            await migrate.check(connection, schema, __version__)
        except SchemaOutdatedError as error:
            return [*found, Finding("schema", Level.FAIL, _sentence(error))]
        found.append(Finding("schema", Level.OK, f"Schema {schema} is that of asyncq {__version__}."))
        for check, look in (
            ("rights", partial(_rights, connection, schema, role)),
            ("vacuum", partial(_vacuum, connection, schema)),
            ("horizon", partial(_horizon, connection, schema)),
            ("notifications", partial(_notifications, dsn, schema, server)),
            ("workers", partial(_work, connection, schema)),
        ):
            try:
                found += await look()
            except psycopg.errors.InsufficientPrivilege as error:
                # The others can still be answered.
                found.append(Finding(check, Level.WARN, f"This role may not see that: {one_line(error)}."))
            except psycopg.errors.UndefinedTable as error:
                found.append(Finding(check, Level.FAIL, f"{_sentence(error)} Restore it from a backup."))
    return found


def _here() -> float:
    return time.time()  # noqa: TID251 - this machine's clock is what is asked about


async def _rights(connection: Connection, schema: str, role: str) -> list[Finding]:
    lacking = None
    try:
        await rights.check(connection, schema, PURPOSES[role])
    except ConfigurationError as error:
        lacking = str(error)
    return diagnosis.rights(lacking, role)


async def _vacuum(connection: Connection, schema: str) -> list[Finding]:
    table = await doctor.tables(connection, schema)
    indexes = await doctor.indexes(connection, schema)
    return [*diagnosis.table(table), *diagnosis.indexes(indexes, table.live + table.dead)]


async def _horizon(connection: Connection, schema: str) -> list[Finding]:
    return diagnosis.horizon(await doctor.horizon(connection, schema))


async def _notifications(dsn: str, schema: str, server: diagnosis.Server) -> list[Finding]:
    if server.read_only:
        return []  # no worker listens there
    address = address_of(dsn, "doctor")
    sender = Session(address)
    try:
        async with listening(address, schema) as listener:
            await sender.ensure_connected()
            began = time.perf_counter()
            came = await listener.hears(sender, schema)
            took = time.perf_counter() - began
    finally:
        await sender.close()
    return diagnosis.notifications(took if came else None, server.notify_usage, pooled=listener.pooled)


async def _work(connection: Connection, schema: str) -> list[Finding]:
    listed = await workers.listed(connection, schema)
    runs = await doctor.leases(connection, schema)
    heads = await doctor.waiting(connection, schema)
    queues = list(dict.fromkeys(head.queue for head in heads))[:MOST_QUEUES]
    return [
        *diagnosis.workers(listed, runs),
        *diagnosis.runs(runs),
        *diagnosis.waiting(heads, listed),
        *diagnosis.claims(await doctor.claims(connection, schema, queues)),
    ]


def _sentence(error: BaseException) -> str:
    text = one_line(error)
    return f"{text[:1].upper()}{text[1:]}."
