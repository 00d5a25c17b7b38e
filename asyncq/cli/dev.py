"""`asyncq dev MODULE …`: everything a developer needs beside the web application, in one terminal.

An embedded PostgreSQL that keeps its data and its port, the migration, and a worker process that is replaced when a
Python file changes. The worker is a process of its own, so that a module that cannot be imported, a handler that hangs
or a crash ends the worker and not this command, and so that new code starts in a new interpreter.
"""

import argparse
import asyncio
import functools
import shlex
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from asyncq.cli import worker
from asyncq.cli.child import Child, started
from asyncq.cli.interrupt import one_error, signals_to
from asyncq.cli.log import printable
from asyncq.cli.reload import ReloadOffError, any_of, changes
from asyncq.db import migrate
from asyncq.db.connection import conninfo_of
from asyncq.db.statements import checked_schema
from asyncq.errors import ConfigurationError
from asyncq.worker import ExitCode

__all__ = ["add", "worker_arguments"]

DATA = Path(".asyncq")
DATABASE = "postgres"
PORT = "port"

FRESH = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Compiled modules are told apart by the second and the size of their source: a quick second save could be missed."""

STOP_SECONDS = 20.0
"""How long a worker has beyond its grace period, before it is killed."""


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "dev",
        help="develop: a database, the migration, and a worker that reloads",
        description="Start an embedded PostgreSQL that keeps its data, migrate it, print its DSN for the web"
        " application, and run the worker, which is replaced when a Python file in the current folder changes. SIGTERM"
        " or Ctrl-C stops all; a second one does not wait for running jobs.",
        epilog="A replaced worker lets its running jobs end: --grace 2 makes that short.",
        allow_abbrev=False,
    )
    parser.add_argument("modules", nargs="+", metavar="MODULE[:NAME]", help="a module with Queue objects, or one")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help=f"where the database and its port are kept (default: {DATA})"
    )
    parser.add_argument("--port", type=int, help="of the database (default: that of the last time)")
    # The environment's ASYNCQ_DSN is not looked at: it is likely what this command printed an hour ago.
    parser.add_argument("--dsn", help="use this database instead of an embedded one")
    parser.add_argument("--schema", help="the schema of asyncq's tables (default: asyncq)")
    worker.add_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    worker.options_of(options)
    checked_schema(options.schema or "asyncq")
    if options.dsn and (options.data or options.port):
        raise ConfigurationError("--data and --port are of the embedded database, which --dsn replaces: not both")
    if options.port is not None and not 1 <= options.port <= 65_535:
        raise ConfigurationError(f"--port must be from 1 to 65535, not {options.port}")
    return asyncio.run(_dev(options))


async def _dev(options: argparse.Namespace) -> int:
    bench = Bench(options)
    with signals_to(lambda _: bench.stop()), one_error():
        async with _database(options) as dsn:
            with bench.preparing:
                await _prepare(dsn, options.schema or "asyncq")
            await bench.run(dsn)
    return ExitCode.FORCED if bench.forced else ExitCode.STOPPED


def _say(text: str) -> None:
    print(f"asyncq dev: {printable(text)}", flush=True)


async def _prepare(dsn: str, schema: str) -> None:
    for step in await migrate.migrate(dsn, schema=schema):
        _say(f"applied to schema {schema}: {step.version:04} {step.name}")
    print(f"DSN: {dsn}")
    # The second is what the user's own code is likely to read; the worker gets both as well.
    print(f"export ASYNCQ_DSN={shlex.quote(dsn)} DATABASE_URL={shlex.quote(dsn)}", flush=True)


# --------------------------------------------------------------------------------------------------------- the database


@asynccontextmanager
async def _database(options: argparse.Namespace) -> AsyncGenerator[str]:
    if options.dsn:
        yield conninfo_of(options.dsn)
        return
    from asyncq import embedded  # noqa: PLC0415 - refuses to be imported where it cannot run

    folder: Path = options.data or DATA
    _make(folder)
    remembered = _remembered_port(folder)
    port = options.port or (remembered if remembered and _is_free(remembered) else None)
    # In a thread, and not to be abandoned there: a signal that arrives meanwhile finds a server that can be stopped.
    server = await anyio.to_thread.run_sync(functools.partial(embedded.start, folder / DATABASE, port=port))
    try:
        whose = "" if server.owned else ", started by another command, and stopped when that ends"
        _say(f"PostgreSQL {server.version} with its data in {folder}{whose}")
        if options.port or remembered is None:
            (folder / PORT).write_text(f"{server.port}\n")
        elif server.port != remembered:
            _say(f"port {remembered} is taken, so the DSN is another one this time")
        yield server.dsn
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.stop)


def _make(folder: Path) -> None:
    """Make the folder for the data, one that git passes over."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Only where nothing else is: a folder of the user's with other things in it stays in git.
        if not any(folder.iterdir()):
            (folder / ".gitignore").write_text("*\n")
    except OSError as error:
        raise ConfigurationError(f"the database cannot be kept in {folder}: {error}") from None


def _remembered_port(folder: Path) -> int | None:
    try:
        return int((folder / PORT).read_text())
    except (FileNotFoundError, ValueError):
        return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As PostgreSQL does: connections of the last server that are not quite forgotten do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


# ----------------------------------------------------------------------------------------------------------- the worker


class Bench:
    """The worker, one process after the other, until the developer stops."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.stopping = anyio.Event()
        self.preparing = anyio.CancelScope()
        self.forced = False
        self._arguments = worker_arguments(options)
        self._patience = options.grace.total_seconds() + STOP_SECONDS
        self._changed = anyio.Event()
        self._child: Child | None = None

    def stop(self) -> None:
        """Stop; asked again, do not wait for the running jobs."""
        if not self.stopping.is_set():
            _say("stopping")
            self.stopping.set()
            self.preparing.cancel()
            return
        self.forced = True
        if self._child is not None:
            self._child.terminate()

    async def run(self, dsn: str) -> None:
        """Work until stopped."""
        async with anyio.create_task_group() as around:
            around.start_soon(self._watch)
            try:
                while not self.stopping.is_set():
                    await self._work(dsn)
            finally:
                # The watch ends with this, and with nothing else.
                self.stopping.set()

    async def _work(self, dsn: str) -> None:
        """Run one worker, until there is a reason to have none or another."""
        # Before the start: what changes while it starts, it may have read or not.
        changed = self._changed = anyio.Event()
        async with started(
            self._arguments,
            dsn=dsn,
            patience=self._patience,
            env=FRESH | {"DATABASE_URL": dsn, "ASYNCQ_LISTEN_DSN": ""},
        ) as child:
            self._child = child
            await any_of(self.stopping.wait, changed.wait, child.wait)
            code = child.returncode
            if code is not None and not self.stopping.is_set():
                # Not at once again: what is wrong is the code or the set-up, and somebody is working on it.
                _say(f"the worker ended with exit code {code}; it starts again when a file changes")
                await any_of(self.stopping.wait, changed.wait)

    async def _watch(self) -> None:
        folder = Path.cwd()
        try:
            async for names in changes(folder, until=self.stopping):
                _say(f"{names} changed: starting the worker anew")
                self._changed.set()
        except ReloadOffError as error:
            _say(f"reload is off: {error}")


def worker_arguments(options: argparse.Namespace) -> list[str]:
    """Give the command line of the worker, from the options of this one."""
    given = ["worker", *options.modules]
    given += [f"--queue={name}" for name in options.queue or ()]
    given += [f"--concurrency={options.concurrency}", f"--stall-leases={options.stall_leases}"]
    given += [f"--log-format={options.log_format}"]
    given += [f"--{name}={getattr(options, name).total_seconds()}" for name in ("poll", "grace", "cleanup")]
    given += [f"--{name}" for name in ("strict", "burst", "verbose") if getattr(options, name)]
    given += [] if options.max_jobs is None else [f"--max-jobs={options.max_jobs}"]
    given += [] if options.durable else ["--no-durable"]
    if options.schema:
        given += [f"--schema={options.schema}"]
    return given
