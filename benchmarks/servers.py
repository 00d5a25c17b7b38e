"""The servers that are measured on: a PostgreSQL and, for the systems that want one, a Redis.

PostgreSQL runs with its default configuration, `fsync` included, on the disk that temporary files are on. Redis runs
with its default configuration too, in which a job survives a crash if it is older than the latest snapshot.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from asyncq import embedded
from benchmarks import account

# Runs a command until our end of the pipe is closed, also by a kill.
LEASHED = '"$@" </dev/null & server=$!; read -r _; kill "$server"; wait "$server"'


class Postgres:
    """A server, our own or somebody's, on which databases are made and dropped."""

    def __init__(self, dsn: str, log: Path | None) -> None:
        self.dsn = dsn
        self._log = log
        self._admin = psycopg.connect(dsn, autocommit=True)
        self.version = self._ask("show server_version")
        # Every backend is a child of the postmaster.
        backend = self._admin.info.backend_pid
        if not Path(f"/proc/{backend}/stat").exists():
            raise SystemExit("the PostgreSQL server must run on this machine: its processor time is measured")
        self.pid = account.parent_of(backend)

    def settings(self) -> dict[str, str]:
        """What decides about durability and speed."""
        names = ["fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "max_connections"]
        return {name: self._ask(sql.SQL("show {}").format(sql.Identifier(name))) for name in names}

    def fresh_database(self, name: str) -> str:
        """Make an empty database, in the place of an earlier one of this name, and give its DSN."""
        self.drop(name)
        self._admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        if "://" in self.dsn:
            return re.sub(r"^([^:]+://[^/]*)(/[^?]*)?", rf"\1/{name}", self.dsn)
        return make_conninfo(self.dsn, dbname=name)

    def drop(self, name: str) -> None:
        self._admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def checkpoint(self) -> None:
        """Write out what earlier rounds left, so that this one does not pay for it."""
        self._admin.execute("checkpoint")

    @contextlib.contextmanager
    def counted(self, database: str) -> Iterator[dict[str, Any]]:
        """Count the statements that come during a block, by the server's log if it is ours, else by transactions."""
        found: dict[str, Any] = {}
        if self._log is None:
            before = self._transactions(database)
            yield found
            found |= {"statements": self._transactions(database) - before, "counted by": "transactions"}
            return
        self._configure("alter system set log_statement = 'all'", "alter system set log_line_prefix = '%d '")
        start = self._log.stat().st_size
        try:
            yield found
        finally:
            self._configure("alter system reset log_statement", "alter system reset log_line_prefix")
        with self._log.open("rb") as log:
            log.seek(start)
            said = log.read().decode(errors="replace")
        pattern = rf"^{re.escape(database)} LOG:  (?:statement|execute [^:]*): (.*)$"
        statements = re.findall(pattern, said, re.MULTILINE)
        found |= {"statements": len(statements), "counted by": "the server's log"}

    def close(self) -> None:
        self._admin.close()

    def _configure(self, *statements: LiteralString) -> None:
        for statement in statements:
            self._admin.execute(statement)
        self._admin.execute("select pg_reload_conf()")
        time.sleep(0.5)  # each backend reads it before its next statement

    def _transactions(self, database: str) -> int:
        time.sleep(1.0)  # sessions report once a second at most
        cursor = self._admin.execute(
            "select xact_commit + xact_rollback from pg_stat_database where datname = %s", (database,)
        )
        row = cursor.fetchone()
        assert row is not None
        return int(row[0])

    def _ask(self, question: LiteralString | sql.Composed) -> str:
        row = self._admin.execute(question).fetchone()
        assert row is not None
        return str(row[0])


class Redis:
    """A Redis of our own, emptied for each stage."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, version: str) -> None:
        self.pid = process.pid
        self.version = version
        self.dsn = f"redis://127.0.0.1:{port}/0"
        self._port = port

    def flush(self) -> None:
        self.say("FLUSHALL")

    def say(self, command: str) -> bytes:
        with socket.create_connection(("127.0.0.1", self._port), timeout=30) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(4096)


@contextlib.contextmanager
def postgres(dsn: str | None, major: int | None) -> Generator[Postgres]:
    """Use somebody's server, or start one: the major asked for, else Debian's 15, else the newest embedded one."""
    if dsn is not None:
        server = Postgres(dsn, log=None)
        yield server
        server.close()
        return
    found = binaries()
    if major is None:
        major = 15 if 15 in found else max(found, default=0)
    if major not in found:
        raise SystemExit(f"PostgreSQL {major} is not on this machine; found: {', '.join(map(str, found)) or 'none'}")
    with embedded.start(bin=found[major]) as own:
        server = Postgres(own.dsn, log=own.log)
        yield server
        server.close()


def binaries() -> dict[int, Path]:
    """Find the `bin` directories of all majors: those of `ASYNCQ_PG_BIN_…` first, embedded ones, then Debian's."""
    found = {int(path.parent.name): path for path in Path("/usr/lib/postgresql").glob("[0-9]*/bin")}
    found |= embedded.installed()
    for name, value in os.environ.items():
        if match := re.fullmatch(r"ASYNCQ_PG_BIN_(\d+)", name):
            found[int(match[1])] = Path(value)
    return {major: path for major, path in sorted(found.items()) if (path / "initdb").exists()}


@contextlib.contextmanager
def redis() -> Generator[Redis | None]:
    """Start a Redis, if the machine has the program."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="asyncq-benchmarks-redis-") as directory:
        process = subprocess.Popen(
            ["/bin/sh", "-c", LEASHED, "sh", program, "--port", str(port), "--bind", "127.0.0.1", "--dir", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            server = Redis(process, port, version.split("v=")[1].split()[0])
            ends = time.monotonic() + 10
            while True:
                try:
                    if server.say("PING").startswith(b"+PONG"):
                        break
                except OSError:
                    if time.monotonic() > ends:
                        raise
                time.sleep(0.05)
            yield server
        finally:
            process.communicate(timeout=30)
