"""`asyncq doctor` finds each of these faults, made for real, and says that all is well where it is."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import psycopg
import pytest
from psycopg import sql

from asyncq.db import workers
from asyncq.db.connection import Session, address_of
from tests.cli.run import run
from tests.pgbouncer import PgBouncer
from tests.servers import majors, with_options
from tests.sql.rows import insert, running

Connection = psycopg.AsyncConnection


async def examined(dsn: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    result = await anyio.to_thread.run_sync(lambda: run("doctor", "--json", *arguments, dsn=dsn))
    assert result.err == ""
    found = [json.loads(line) for line in result.lines]
    # As it is with the servers of tests.
    slack = [each for each in found if each["text"].startswith("fsync is off")]
    assert [each["level"] for each in slack] == ["warn"]
    return result.code, [each for each in found if each not in slack]


@asynccontextmanager
async def working(dsn: str, **said: object) -> AsyncGenerator[Session]:
    """A worker that has just said that it lives."""
    session = Session(address_of(dsn, "worker"))
    known = {"queues": ["q"], "tasks": ["t"], "concurrency": 10, "release": "1", **said}
    try:
        await workers.register(session, "asyncq", worker="worker-1", **known)  # type: ignore[arg-type]
        yield session
    finally:
        await session.close()


@majors(12, 18)
async def test_all_is_well(dsn: str, conn: Connection) -> None:
    async with working(dsn):
        await insert(conn)
        await running(conn, 1)
        code, found = await examined(dsn, "--role", "worker")
        assert (code, {each["level"] for each in found}) == (0, {"ok"}), found
        checks = [
            "clock", "schema", "rights", "vacuum", "indexes", "horizon", "notifications", "workers", "leases",
            "queues", "claims",
        ]  # fmt: skip
        assert [each["check"] for each in found] == checks
        told = await anyio.to_thread.run_sync(lambda: run("doctor", dsn=dsn))
    assert (told.code, told.err) == (0, "")
    assert told.lines[:2] == [
        "warn  server         fsync is off: a crash of the machine may lose committed jobs.",
        "                     Switch it on.",
    ]
    assert told.lines[2].startswith("ok    clock          This machine and the database differ by 0.")


Fault = Callable[[Connection], Awaitable[object]]


def does(statement: str) -> Fault:
    async def do(conn: Connection) -> None:
        await conn.execute(statement.encode())

    return do


def alters(setting: str) -> Fault:
    async def do(conn: Connection) -> None:
        await conn.execute(f'alter database "{conn.info.dbname}" set {setting}'.encode())

    return do


def inserts(**columns: object) -> Fault:
    return lambda conn: insert(conn, **columns)


async def leaves_a_run(conn: Connection) -> None:
    await running(conn, 1, leased_until=OLD)


OLD = sql.SQL("now() - interval '1 hour'")
ANOTHER = "insert into asyncq.workers select 'other', now(), now(), null, 1, {}, queues, tasks from asyncq.workers"
INVALID = "update pg_index set indisvalid = false where indexrelid = 'asyncq.jobs_claim'::regclass"

FAULTS: dict[str, tuple[Fault, str, str]] = {
    "read-only": (alters("default_transaction_read_only = on"), "fail server", "read-only"),
    "not synchronous": (alters("synchronous_commit = off"), "warn server", "synchronous_commit is off"),
    "old schema": (does("delete from asyncq.migrations where version = 2"), "fail schema", "lacks migration 2: run"),
    "no schema": (does("drop schema asyncq cascade"), "fail schema", "run 'asyncq migrate' first"),
    "not vacuumed": (does("alter table asyncq.jobs set (autovacuum_enabled = off)"), "fail vacuum", "is switched off"),
    "missing index": (does("drop index asyncq.jobs_running"), "fail indexes", "index jobs_running is missing"),
    "invalid index": (does(INVALID), "fail indexes", "jobs_claim is not valid"),
    "unserved queue": (inserts(queue="nobody's"), "fail queues", "nobody's has jobs that have been due"),
    "unknown task": (inserts(task="gone"), "fail queues", "whose tasks no worker of it has: gone."),
    "old job": (inserts(run_at=OLD), "warn queues", "The first job of queue q has been due for 60 min"),
    "no rescue": (leaves_a_run, "fail leases", "1 jobs whose leases ran out"),
    "no worker": (does("delete from asyncq.workers"), "fail workers", "No worker is alive"),
    "stopping": (does("update asyncq.workers set stopping_at = now()"), "fail workers", "All workers are stopping"),
    "releases": (does(ANOTHER.format("'2'")), "warn workers", "Workers of several releases are alive: 1, 2."),
}


@pytest.mark.parametrize(("fault", "expected", "says"), FAULTS.values(), ids=FAULTS)
async def test_it_finds_this_fault(dsn: str, conn: Connection, fault: Fault, expected: str, says: str) -> None:
    async with working(dsn):
        await fault(conn)
        code, found = await examined(dsn)
    [finding] = [each for each in found if each["level"] != "ok"]
    assert f"{finding['level']} {finding['check']}" == expected
    assert says in finding["text"]
    assert code == (1 if finding["level"] == "fail" else 0)


async def test_it_finds_a_stuck_worker(dsn: str, conn: Connection) -> None:
    """Its event loop is blocked: it is silent, and its watchdog keeps the leases."""
    async with working(dsn):
        await running(conn, 1)
        await does(ANOTHER.format("'1'"))(conn)
        await conn.execute("update asyncq.workers set seen_at = now() - interval '5 minutes' where id = 'worker-1'")
        code, found = await examined(dsn)
    [finding] = [each for each in found if each["level"] != "ok"]
    assert (code, finding["check"], finding["level"]) == (0, "workers", "warn")
    assert "Worker worker-1 keeps its jobs but has not said lately" in finding["text"]


async def test_it_finds_who_keeps_deleted_rows(dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncq.diagnosis.HORIZON_SECONDS", (0.0, 3600.0))
    monkeypatch.setattr("asyncq.diagnosis.CLAIM_PAGES", 20)
    async with working(dsn), await psycopg.AsyncConnection.connect(dsn, application_name="the report") as report:
        await conn.execute("insert into asyncq.jobs (queue, task) select 'q', 't' from generate_series(1, 5000)")
        await report.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await report.execute("select 'the sums'")
        await conn.execute("delete from asyncq.jobs")
        await insert(conn)
        _, found = await examined(dsn)
        pid = report.info.backend_pid
    warned = {each["check"]: each for each in found if each["level"] == "warn"}
    assert warned.keys() == {"horizon", "claims"}
    assert f"The session {pid} keeps deleted rows" in warned["horizon"]["text"]
    assert "the report of postgres, idle in transaction: select 'the sums'" in warned["horizon"]["text"]
    assert f"pg_terminate_backend({pid})" in warned["horizon"]["advice"]
    assert "The first job of queue q is found after" in warned["claims"]["text"]


async def test_it_finds_a_pooler_that_swallows_notifications(dsn: str, conn: Connection, tmp_path: Path) -> None:
    bouncer = PgBouncer(dsn, tmp_path)
    try:
        async with working(dsn):
            code, found = await examined(bouncer.dsn)
    finally:
        bouncer.stop()
    [finding] = [each for each in found if each["level"] != "ok"]
    assert (code, finding["check"], finding["level"]) == (0, "notifications", "warn")
    assert "None arrive behind a pooler in transaction mode" in finding["text"]


async def test_it_finds_missing_rights_and_looks_at_what_it_may(dsn: str, conn: Connection) -> None:
    await conn.execute("create role looks login password 'secret'; grant usage on schema asyncq to looks")
    await conn.execute("grant select on asyncq.migrations, asyncq.workers to looks")
    theirs = with_options(dsn, user="looks", password="secret")
    try:
        async with working(dsn):
            code, found = await examined(theirs)
            bad = {each["check"]: each for each in found if each["level"] != "ok"}
            assert code == 1
            assert {check: each["level"] for check, each in bad.items()} == {"rights": "fail", "workers": "warn"}
            assert "grant select (id, queue, task, state" in bad["rights"]["text"]
            assert "permission denied for table jobs" in bad["workers"]["text"]
            await conn.execute(bad["rights"]["text"].split("'")[1].encode())
            assert (await examined(theirs))[0] == 0
            assert (await examined(theirs, "--role", "producer"))[0] == 1
    finally:
        await conn.execute("drop owned by looks; drop role looks")
