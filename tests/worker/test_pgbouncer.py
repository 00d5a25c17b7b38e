"""Workers behind pgbouncer, which is where many production databases are."""

import logging
import time
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import anyio
import psycopg
import pytest
from psycopg import sql

from asyncq import ExitCode, Queue, RetryPolicy, WorkerOptions
from asyncq.db.connection import Session, address_of, connect
from asyncq.db.jobs import heartbeat
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.pgbouncer import PgBouncer
from tests.sql.rows import value
from tests.truth import TruthLog
from tests.worker import app
from tests.worker.inside import recording, running_worker

Connection = psycopg.AsyncConnection

pytestmark = pytest.mark.once

UNDELIVERED = "notifications do not arrive"
JOBS = 2000


@pytest.fixture
def bouncer(request: pytest.FixtureRequest, dsn: str, tmp_path: Path) -> Generator[PgBouncer]:
    """In transaction mode, or as the test's parameters say."""
    bouncer = PgBouncer(dsn, tmp_path, **getattr(request, "param", {}))
    yield bouncer
    bouncer.stop()


def said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "bouncer",
    [{}, {"ignore": "options"}, {"sessions": 1}, {"mode": "session", "sessions": 20}],
    indirect=True,
    ids=["refusing", "forgetting", "one session", "session mode"],
)
async def test_a_worker_runs_all_jobs_through_it(bouncer: PgBouncer, conn: Connection) -> None:
    """Deferred through it too, from a connection that prepares nothing, as the README says."""
    queue = Queue(retry=RetryPolicy(base=timedelta(seconds=0.05), factor=1.0, jitter=0.0))
    ran: list[int] = []

    @queue.task(name="task", max_attempts=3)
    async def task(number: int) -> None:
        ran.append(number)
        if number % 100 == 0 and ran.count(number) == 1:
            raise ValueError("once more")

    async with await psycopg.AsyncConnection.connect(bouncer.dsn, prepare_threshold=None) as producer:
        await task.defer_many(producer, [task.args(number) for number in range(JOBS - 100)])
        for number in range(JOBS - 100, JOBS):
            await task.defer(producer, number)
    async with running_worker(queue, bouncer.dsn, WorkerOptions(concurrency=50)) as inside:

        async def empty() -> bool:
            return await value(conn, "select count(*) from asyncq.jobs") == 0

        await eventually(empty, 30, describe="all jobs are done")
    assert inside.code is ExitCode.STOPPED
    assert sorted(ran) == sorted([*range(JOBS), *range(0, JOBS, 100)])


async def test_where_notifications_do_not_arrive_it_says_so_once_and_looks_each_second(
    bouncer: PgBouncer, conn: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    queue = Queue()
    task, ran = recording(queue)
    async with running_worker(queue, bouncer.dsn, WorkerOptions(poll=timedelta(hours=1))):
        for number in range(3):
            await anyio.sleep(1.5)
            asked = time.monotonic()
            await task.defer(conn, number)
            await eventually(lambda wanted=number + 1: len(ran) == wanted, 5, describe="the job starts")
            assert time.monotonic() - asked < 3.0
    assert said(caplog, UNDELIVERED) == 1
    assert said(caplog, "worker ready") == 1


async def test_where_notifications_do_not_arrive_what_is_put_into_the_past_is_found_too(
    bouncer: PgBouncer, conn: Connection
) -> None:
    queue = Queue()
    task, ran = recording(queue)
    async with running_worker(queue, bouncer.dsn, WorkerOptions(poll=timedelta(hours=1))):
        await task.defer(conn, 0)
        await eventually(lambda: ran == [0])
        await anyio.sleep(2.0)  # so that it no longer looks from the very start for another reason
        for number in (1, 2):
            args = f'{{"number": {number}}}'
            await conn.execute("select asyncq.defer('task', %s, run_at => now() - interval '1 hour')", (args,))
            await eventually(lambda wanted=number: ran[-1] == wanted, 5, describe="the job starts")


@pytest.mark.parametrize("bouncer", [{"mode": "session", "sessions": 1}], indirect=True)
async def test_a_pooler_without_a_free_session_is_named(bouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncq.db.connection.FIRST_ANSWER_SECONDS", 0.3)
    async with await psycopg.AsyncConnection.connect(bouncer.dsn, autocommit=True, prepare_threshold=None) as holder:
        await holder.execute("select 1")
        with pytest.raises(psycopg.OperationalError, match="no session of the server left"):
            await connect(address_of(bouncer.dsn, "test"))


async def test_with_a_direct_connection_to_listen_jobs_start_at_once(
    bouncer: PgBouncer, dsn: str, conn: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    queue = Queue()
    task, ran = recording(queue)
    options = WorkerOptions(poll=timedelta(hours=1), listen_dsn=dsn)
    waited: list[float] = []
    async with running_worker(queue, bouncer.dsn, options):
        for number in range(9):
            await anyio.sleep(0.3)
            asked = time.monotonic()
            await task.defer(conn, number)
            await eventually(lambda wanted=number + 1: len(ran) == wanted, 5, describe="the job starts")
            waited.append(time.monotonic() - asked)
    # Looking by itself it would take from a quarter to half a second on average.
    assert sorted(waited)[4] < 0.2
    assert said(caplog, UNDELIVERED) == 0
    assert said(caplog, "through a pooler") == 1


@pytest.mark.parametrize("bouncer", [{"mode": "session", "sessions": 20}], indirect=True)
async def test_in_session_mode_notifications_arrive(
    bouncer: PgBouncer, conn: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue()
    task, ran = recording(queue)
    async with running_worker(queue, bouncer.dsn, WorkerOptions(poll=timedelta(hours=1))):

        async def idle() -> bool:
            return await value(conn, "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ShareLock'")

        await eventually(idle, 5, describe="the worker waits to be told")
        await task.defer(conn, 1)
        await eventually(lambda: ran == [1], 5, describe="the job starts")
    assert said(caplog, UNDELIVERED) == 0


@pytest.mark.parametrize("bouncer", [{"sessions": 1}], indirect=True)
async def test_nothing_is_left_in_sessions_that_others_use(bouncer: PgBouncer, conn: Connection) -> None:
    """No settings, prepared statements, locks or channels: there is one session, which each client gets in turn."""
    async with await psycopg.AsyncConnection.connect(bouncer.dsn, autocommit=True, prepare_threshold=None) as neighbour:
        settings = (
            "select string_agg(name || setting, ',' order by name) from pg_settings where name <> 'application_name'"
        )
        before = await value(neighbour, settings)
        queue = Queue()
        task, ran = recording(queue)
        async with running_worker(queue, bouncer.dsn):
            await task.defer_many(conn, [task.args(number) for number in range(50)])
            await eventually(lambda: len(ran) == 50, describe="the jobs ran")
            assert await value(neighbour, settings) == before
            assert await value(neighbour, "select count(*) from pg_listening_channels()") == 0
            assert await value(neighbour, "select count(*) from pg_prepared_statements") == 0
            assert await value(neighbour, "select count(*) from pg_locks where locktype = 'advisory'") == 0


async def test_each_statement_has_the_settings(bouncer: PgBouncer) -> None:
    connected = await connect(address_of(bouncer.dsn, "test"))
    assert connected.pooled
    await connected.connection.close()
    session = Session(address_of(bouncer.dsn, "test", patience=7.0, durable=False))
    names = ("plan_cache_mode", "lock_timeout", "statement_timeout", "synchronous_commit", "search_path")
    rows = await session.fetch(
        "select array(select current_setting(name) from unnest(%(names)s::text[]) name)", {"names": list(names)}
    )
    assert rows[0][0] == ["force_generic_plan", "2s", "5600ms", "off", "pg_catalog,pg_temp"]
    await session.close()


@pytest.mark.parametrize("bouncer", [{"ignore": "options"}], indirect=True)
async def test_a_database_with_the_same_settings_is_not_taken_for_a_direct_connection(
    bouncer: PgBouncer, conn: Connection
) -> None:
    await conn.execute(
        sql.SQL("alter database {} set plan_cache_mode = force_generic_plan").format(sql.Identifier(conn.info.dbname))
    )
    bouncer.stop()
    bouncer.start()
    connected = await connect(address_of(bouncer.dsn, "test"))
    assert await value(connected.connection, "select current_setting('plan_cache_mode')") == "force_generic_plan"
    assert connected.pooled
    await connected.connection.close()


async def test_a_failed_statement_does_not_spoil_the_next(bouncer: PgBouncer, conn: Connection) -> None:
    session = Session(address_of(bouncer.dsn, "test"))
    for _ in range(2):
        with pytest.raises(psycopg.errors.UndefinedTable):
            await heartbeat(session, "nowhere", [])
        assert await session.fetch("select %(number)s::bigint", {"number": 7}) == [(7,)]
    await session.close()
    assert await value(conn, "select count(*) from pg_stat_activity where state like 'idle in transaction%'") == 0


async def test_the_worker_survives_a_restart_of_it(bouncer: PgBouncer, conn: Connection) -> None:
    queue = Queue(lease=timedelta(seconds=2))
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        await anyio.sleep(0.02)
        ran.append(number)

    async with running_worker(queue, bouncer.dsn, WorkerOptions(concurrency=10)):
        await task.defer_many(conn, [task.args(number) for number in range(500)])
        for _ in range(3):
            seen = len(ran)
            bouncer.stop()
            await anyio.sleep(0.3)
            bouncer.start()
            await eventually(lambda old=seen: len(ran) > old or len(ran) >= 500, 15, describe="it goes on")

        async def empty() -> bool:
            return await value(conn, "select count(*) from asyncq.jobs") == 0

        await eventually(empty, 20, describe="all jobs are done")
    assert set(ran) == set(range(500))


async def test_leases_are_kept_and_a_killed_workers_jobs_are_rescued(
    bouncer: PgBouncer, dsn: str, conn: Connection, truth: TruthLog, start_worker: StartWorker
) -> None:
    """Heartbeat, watchdog and rescue in processes of their own; leases are one second."""
    first = start_worker("tests.worker.app", dsn=bouncer.dsn)
    await first.wait_ready()
    lasting = await app.lasting.defer(conn, 4.0)
    blocking = await app.blocking.defer(conn, 3.0)

    async def ended(job_id: int) -> bool:
        return bool(await truth.rows(job_id, "end"))

    await eventually(lambda: ended(lasting.id), 15, describe="the long job ends")
    await eventually(lambda: ended(blocking.id), 15, describe="the blocking job ends")
    assert len(await truth.rows(lasting.id, "start")) == len(await truth.rows(blocking.id, "start")) == 1
    forever = await app.lasting.defer(conn, 3600.0)

    async def started(times: int) -> bool:
        return len(await truth.rows(forever.id, "start")) == times

    await eventually(lambda: started(1), describe="the job starts")
    second = start_worker("tests.worker.app", "--grace", "0", "--listen-dsn", dsn, dsn=bouncer.dsn)
    await second.wait_ready()
    first.kill()
    await eventually(lambda: started(2), 15, describe="the job runs again")
    second.terminate()
    assert await second.wait() == ExitCode.STOPPED
    assert UNDELIVERED in first.stderr
    assert UNDELIVERED not in second.stderr
