"""Real PostgreSQL servers for the tests: one of each major for the whole session, a database of its own for each test.

A server is found by its major: `ASYNCQ_PG_BIN_12=/path/to/bin` first, then the wheel of the `embedded` extra, then
Debian's `/usr/lib/postgresql/12/bin`. It is started when the first test asks for it. A template database is migrated
once per server; every test gets a copy of it, which is dropped afterwards, whoever is still connected to it.
"""

import asyncio
import itertools
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from asyncq import embedded
from asyncq.db.migrate import migrate
from benchmarks.servers import binaries

__all__ = ["DEFAULT_MAJOR", "Postgres", "Servers", "majors", "with_options"]

DEFAULT_MAJOR = 18

TEMPLATE = "asyncq_template"

SETTINGS = {
    # The data is thrown away, and a crash of the server alone loses nothing without it.
    "fsync": "off",
    "full_page_writes": "off",
    # A leftover of one test must not be what the next one fails by.
    "max_connections": "300",
    # What the tests wait for must not wait for a spread-out checkpoint.
    "checkpoint_timeout": "1h",
    "max_wal_size": "256MB",
}


MEMORY = Path("/dev/shm")


def scratch() -> Path | None:
    """Say where the data goes: into memory if there is enough, where a database is made in a fraction of the time."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return None
    return MEMORY if free > 4 * 1024**3 else None


def majors(*wanted: int) -> pytest.MarkDecorator:
    """Run a test on each of these majors, whatever `--postgres` says; one that is not here is skipped.

    The mark sets the `postgres` fixture, and with it `dsn`, `conn` and the others.
    """
    return pytest.mark.parametrize("postgres", wanted, indirect=True, ids=[f"pg{major}" for major in wanted])


class Postgres:
    """One server of the session, and the databases on it."""

    def __init__(self, server: embedded.EmbeddedServer) -> None:
        self.server = server
        self.major = server.version
        self._numbers = itertools.count(1)
        self._has_template = False

    def dsn_of(self, database: str) -> str:
        return re.sub(r"/postgres$", f"/{database}", self.server.dsn)

    def execute(self, statement: sql.SQL | sql.Composed | LiteralString, **params: object) -> list[tuple[Any, ...]]:
        """Run a statement as superuser in the database `postgres`, outside of any transaction."""
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, params or None)
            return cursor.fetchall() if cursor.description else []

    def create_database(self, *, migrated: bool = True) -> str:
        """Create a database and return its DSN."""
        name = f"test_{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        template = self._template() if migrated else "template0"
        self.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return self.dsn_of(name)

    def drop_database(self, dsn: str) -> None:
        """Drop a database, and end the sessions that are left in it."""
        name = str(conninfo_to_dict(dsn)["dbname"])
        if self.major >= 13:  # FORCE came with it
            self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
            return
        # Nobody may come back between the end of the sessions and the drop.
        self.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %(name)s", name=name)
        self.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))  # waits up to 5 s for their ends

    def _template(self) -> str:
        if not self._has_template:
            self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(TEMPLATE)))
            dsn = self.dsn_of(TEMPLATE)
            # A thread, because fixtures may be set up while the test's own event loop is the thread's current one.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(lambda: asyncio.run(_migrated(dsn))).result()
            # A session in the template, be it autovacuum's, would make CREATE DATABASE wait.
            self.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(TEMPLATE)))
            self._has_template = True
        return TEMPLATE


async def _migrated(dsn: str) -> None:
    await migrate(dsn)


class Servers:
    """The session's servers, each started when it is first asked for."""

    def __init__(self) -> None:
        self._shared: dict[int, Postgres] = {}
        self._open: list[embedded.EmbeddedServer] = []

    def shared(self, major: int) -> Postgres:
        """The server of this major that all tests use. Skips the test where this machine has none."""
        if major not in self._shared:
            self._shared[major] = Postgres(self._start(major))
        return self._shared[major]

    def own(self, major: int) -> Postgres:
        """A server that the test may stop, crash and refill: nobody else uses it. It takes a second."""
        return Postgres(self._start(major))

    def close(self) -> None:
        while self._open:
            self._open.pop().stop()

    def _start(self, major: int) -> embedded.EmbeddedServer:
        found = binaries()
        if major not in found:
            here = ", ".join(map(str, found)) or "none"
            pytest.skip(f"PostgreSQL {major} is not on this machine (found: {here}); ASYNCQ_PG_BIN_{major} can name it")
        server = embedded.start(bin=found[major], settings=SETTINGS, scratch=scratch())
        self._open.append(server)
        return server


def with_options(dsn: str, **options: str | int) -> str:
    """Give a DSN with other connection options, `application_name="…"` and the like."""
    return make_conninfo(dsn, **options)
