"""Fixtures: a migrated database for each test on a real server, connections to it, worker processes, the truth log."""

import os
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import psycopg
import pytest

from benchmarks.servers import binaries
from tests.processes import WorkerProcess
from tests.servers import DEFAULT_MAJOR, Postgres, Servers
from tests.truth import TruthLog

NO_SKIP = os.environ.get("ASYNCQ_TEST_NO_SKIP") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("asyncq")
    group.addoption(
        "--postgres",
        type=int,
        default=DEFAULT_MAJOR,
        metavar="MAJOR",
        help=f"run the tests on this PostgreSQL (default {DEFAULT_MAJOR}), found in $ASYNCQ_PG_BIN_<MAJOR>, in the"
        " wheel of the embedded extra or in /usr/lib/postgresql",
    )
    group.addoption("--uvloop", action="store_true", help="run the tests on uvloop's event loop")


def chosen(config: pytest.Config) -> int:
    major = config.getoption("--postgres")
    assert isinstance(major, int)
    return major


def pytest_configure(config: pytest.Config) -> None:
    major, found = chosen(config), binaries()
    if major not in found:
        here = ", ".join(map(str, found)) or "none"
        raise pytest.UsageError(f"--postgres {major}: not on this machine (found: {here}); see --help")


def pytest_report_header(config: pytest.Config) -> str:
    return f"postgres: {chosen(config)} of {', '.join(map(str, binaries()))}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Where everything is installed, a skipped test is a test that nobody runs."""
    report: pytest.TestReport = yield
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"ASYNCQ_TEST_NO_SKIP is set, and this test was skipped: {reason}"
    return report


@pytest.fixture(scope="session")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.config.getoption("--uvloop")}


@pytest.fixture(scope="session")
def servers() -> Generator[Servers]:
    """All the servers of this session."""
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture
def postgres(request: pytest.FixtureRequest, servers: Servers) -> Postgres:
    """The server that all tests share: of `--postgres`, or of the test's own `majors(…)`."""
    return servers.shared(getattr(request, "param", chosen(request.config)))


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest, servers: Servers) -> Generator[Postgres]:
    """A server for this test alone, to be stopped and crashed. It takes a second to start."""
    postgres = servers.own(getattr(request, "param", chosen(request.config)))
    yield postgres
    postgres.server.stop()


@pytest.fixture
def dsn(postgres: Postgres) -> Generator[str]:
    """A migrated database of the test's own."""
    dsn = postgres.create_database()
    yield dsn
    postgres.drop_database(dsn)


@pytest.fixture
def empty_dsn(postgres: Postgres) -> Generator[str]:
    """A database of the test's own that nobody has migrated."""
    dsn = postgres.create_database(migrated=False)
    yield dsn
    postgres.drop_database(dsn)


@pytest.fixture
async def conn(dsn: str) -> AsyncGenerator[psycopg.AsyncConnection]:
    """A connection in autocommit: what it does is seen by all at once."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
async def tx_conn(dsn: str) -> AsyncGenerator[psycopg.AsyncConnection]:
    """A connection as psycopg gives it: the first statement begins a transaction, which the test commits or not."""
    conn = await psycopg.AsyncConnection.connect(dsn)
    yield conn
    await conn.close()


@pytest.fixture
async def truth(dsn: str) -> AsyncGenerator[TruthLog]:
    """The handlers' own log, in this test's database."""
    log = TruthLog(dsn)
    await log.create()
    yield log
    await log.close()


class StartWorker(Protocol):
    """Start `python -m asyncq worker MODULE …` on this test's database."""

    def __call__(
        self, module: str, *arguments: str, env: Mapping[str, str] = ..., paths: Sequence[Path] = ..., dsn: str = ...
    ) -> WorkerProcess: ...


@pytest.fixture
def start_worker(dsn: str, tmp_path: Path) -> Generator[StartWorker]:
    """A function that starts worker processes. They are killed at the test's end; modules in `tmp_path` are found."""
    started: list[WorkerProcess] = []
    test_dsn = dsn

    def start(
        module: str,
        *arguments: str,
        env: Mapping[str, str] = MappingProxyType({}),
        paths: Sequence[Path] = (),
        dsn: str = test_dsn,
    ) -> WorkerProcess:
        worker = WorkerProcess(
            dsn,
            module,
            *arguments,
            logs=tmp_path,
            env=env,
            paths=[tmp_path, *paths],
            name=f"worker-{len(started) + 1}",
        )
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.reap()
