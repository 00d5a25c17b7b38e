"""What several commands share: the DSN and the schema, what a role lacks, and the queues of the user's modules."""

import argparse
import asyncio
import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

from asyncq.db import rights
from asyncq.db.connection import conninfo_of
from asyncq.db.statements import checked_schema
from asyncq.errors import ConfigurationError
from asyncq.queue import Queue

__all__ = ["add_database", "connected", "dsn_of", "explaining", "queues_of", "run", "schema_of", "seconds"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of the kind that psycopg can use, which is not Windows' default."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(main)


def add_database(parser: argparse.ArgumentParser) -> None:
    """Declare --dsn and --schema."""
    parser.add_argument(
        "--dsn",
        help="the database, a URL or libpq words; else the environment's ASYNCQ_DSN or DATABASE_URL, or libpq's own"
        " PGHOST, PGSERVICE or PGDATABASE",
    )
    parser.add_argument("--schema", help="the schema of asyncq's tables (default: asyncq)")


def dsn_of(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> str:
    """Find the DSN.

    Raises:
        ConfigurationError: there is none, or it cannot be read. It says what to set.
    """
    dsn = find_dsn(options, environ)
    if dsn is None:
        raise ConfigurationError(
            "which database? Give --dsn postgresql://user@host/database, or set ASYNCQ_DSN, DATABASE_URL, or libpq's"
            " PGHOST, PGSERVICE or PGDATABASE"
        )
    return dsn


def find_dsn(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> str | None:
    """Find the DSN, if any is given."""
    if options.dsn == "":
        raise ConfigurationError("--dsn is empty: is a variable in it not set?")
    for given in (options.dsn, environ.get("ASYNCQ_DSN"), environ.get("DATABASE_URL")):
        if given:
            return conninfo_of(given)
    return "" if any(environ.get(name) for name in ("PGHOST", "PGSERVICE", "PGDATABASE")) else None


def schema_of(options: argparse.Namespace, queues: Iterable[Queue] = ()) -> str:
    """The schema that was asked for; queues that say another one are refused."""
    said = {queue.schema for queue in queues}
    schema = options.schema
    if schema is None:
        return next(iter(said)) if len(said) == 1 else "asyncq"
    checked_schema(schema)
    for queue in queues:
        if queue.schema != schema:
            raise ConfigurationError(f"--schema {schema} and Queue({queue.name!r}, schema={queue.schema!r}) differ")
    return schema


@asynccontextmanager
async def connected(
    dsn: str, schema: str, needed: Sequence[rights.Right]
) -> AsyncGenerator[psycopg.AsyncConnection[TupleRow]]:
    """A connection in autocommit; refusals are explained as by `explaining`."""
    async with (
        explaining(dsn, schema, needed),
        await psycopg.AsyncConnection.connect(conninfo_of(dsn), autocommit=True) as connection,
    ):
        yield connection


@asynccontextmanager
async def explaining(dsn: str, schema: str, needed: Sequence[rights.Right]) -> AsyncGenerator[None]:
    """Say what is to be granted when the database refuses the block for a missing right.

    Raises:
        ConfigurationError: in place of the database's error, where one of the rights is missing indeed.
    """
    try:
        yield
    except psycopg.errors.InsufficientPrivilege:
        async with await psycopg.AsyncConnection.connect(conninfo_of(dsn)) as connection:
            await rights.check(connection, schema, needed)
        raise


def seconds(text: str) -> timedelta:
    """A duration on the command line, in seconds."""
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"must be a number of seconds, not {text!r}") from None


def queues_of(modules: Iterable[str]) -> list[Queue]:
    """Import `MODULE` or `MODULE:NAME` and give the Queue objects found, each once, in order.

    Raises:
        ConfigurationError: no such module, no queue in it, or the module itself fails. The message says which.
    """
    # As `python -m` does: the user's modules are where the command is called.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found: dict[Queue, None] = {}
    for given in modules:
        name, _, attribute = given.partition(":")
        module = _import(name)
        if attribute:
            queue: object = getattr(module, attribute, None)
            if not isinstance(queue, Queue):
                what = f"has no {attribute!r}" if queue is None else f"has a {type(queue).__name__} there"
                names = ", ".join(key for key, value in vars(module).items() if isinstance(value, Queue)) or "none"
                raise ConfigurationError(f"{given!r} is not a Queue: module {name!r} {what}; its queues: {names}")
            found[queue] = None
        else:
            here = [value for value in vars(module).values() if isinstance(value, Queue)]
            if not here:
                raise ConfigurationError(f"there is no Queue in module {name!r}: name the module where one is made")
            found.update(dict.fromkeys(here))
    return list(found)


def _import(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name or not name:
        dotted = name.removesuffix(".py").replace("/", ".").strip(".")
        example = f", such as {dotted}" if dotted else ""
        raise ConfigurationError(f"give a module as Python imports it{example}, not {name!r}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no module {name!r}: Python looked in the current folder {str(Path.cwd())!r} and in its path"
            ) from None
        raise ConfigurationError(f"importing {name!r} failed: {error}\n{_where(error)}") from error
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"importing {name!r} failed: {what}\n{_where(error)}") from error


def _where(error: BaseException) -> str:
    """The line of the user's own code at which importing it failed."""
    if isinstance(error, SyntaxError):
        return f"at {error.filename}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f"at {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


def _is_users(filename: str) -> bool:
    """Neither the import machinery, nor the standard library, nor an installed package, nor asyncq itself."""
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    others = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not any(path.is_relative_to(other) for other in (*others, Path(__file__).resolve().parents[1]))
