"""The database goes away for a while, or a handler breaks its own way to it."""

import logging
import socket
import time
from collections import Counter
from datetime import timedelta

import anyio
import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

from asyncq import ExitCode, Queue, RetryPolicy, WorkerOptions, current_job
from tests.eventually import eventually
from tests.servers import Postgres, with_options
from tests.sql import rows
from tests.worker.inside import recording, running_worker

RARE = WorkerOptions(poll=timedelta(minutes=5))
AWAY_SECONDS = 4.0


async def test_outcomes_of_jobs_that_end_while_the_database_is_away_are_written_once_it_is_back(
    own_postgres: Postgres,
) -> None:
    dsn = own_postgres.create_database()
    queue = Queue()
    gate = anyio.Event()
    ran: list[int] = []

    @queue.task(name="waits")
    async def waits(number: int) -> None:
        await gate.wait()
        ran.append(number)

    task, later = recording(queue)
    async with running_worker(queue, dsn, RARE) as inside:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await waits.defer_many(conn, [waits.args(number) for number in range(20)])

            async def all_run() -> bool:
                return len(await rows.ids(conn, "running")) == 20

            await eventually(all_run, describe="all run")
        await anyio.to_thread.run_sync(own_postgres.server.halt)
        gate.set()
        await anyio.sleep(AWAY_SECONDS)
        assert sorted(ran) == list(range(20))
        await anyio.to_thread.run_sync(own_postgres.server.resume)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:

            async def none() -> bool:
                return await rows.count(conn) == 0

            await eventually(none, 15, describe="all outcomes are written")
            assert sorted(ran) == list(range(20))

            # By a notification: the next poll is minutes away.
            async def listens() -> bool:
                count = "select count(*) from pg_stat_activity where application_name like 'asyncq listen %%'"
                return await rows.value(conn, count) == 1

            await eventually(listens, 15, describe="it listens again")
            asked = time.perf_counter()
            await task.defer(conn, 1)
            await eventually(lambda: later == [1], describe="a job runs")
            assert time.perf_counter() - asked < 2
    assert inside.code is ExitCode.STOPPED


async def test_a_stop_while_the_database_is_away_ends_in_time_and_names_what_could_not_be_written(
    own_postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = own_postgres.create_database()
    queue = Queue()
    gate = anyio.Event()

    @queue.task(name="waits")
    async def waits() -> None:
        await gate.wait()

    async with running_worker(queue, dsn, WorkerOptions(grace=timedelta(seconds=1))) as inside:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            job = (await waits.defer(conn)).id

            async def runs() -> bool:
                return await rows.ids(conn, "running") == [job]

            await eventually(runs, describe="it runs")
        await anyio.to_thread.run_sync(own_postgres.server.halt)
        gate.set()
        await anyio.sleep(0.5)
        stopped = time.perf_counter()
    assert time.perf_counter() - stopped < 1 + 15
    assert inside.code is ExitCode.FAILED
    assert f"could not be written; they run again when their leases end: {job}" in caplog.text


@pytest.mark.parametrize("stopped", [False, True], ids=["the database comes back", "it is stopped meanwhile"])
async def test_a_worker_that_ends_by_itself_keeps_outcomes_until_the_database_is_back(
    own_postgres: Postgres, monkeypatch: pytest.MonkeyPatch, *, stopped: bool
) -> None:
    monkeypatch.setattr("asyncq.worker.worker.SETTLE_SECONDS", 0.5)
    dsn = own_postgres.create_database()
    queue = Queue()
    gate = anyio.Event()
    ran: list[int] = []

    @queue.task(name="waits")
    async def waits(number: int) -> None:
        await gate.wait()
        ran.append(number)

    async with running_worker(queue, dsn, WorkerOptions(max_jobs=3)) as inside:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await waits.defer_many(conn, [waits.args(number) for number in range(3)])

            async def all_run() -> bool:
                return len(await rows.ids(conn, "running")) == 3

            await eventually(all_run, describe="all run")
        await anyio.to_thread.run_sync(own_postgres.server.halt)
        gate.set()
        await eventually(lambda: len(ran) == 3)
        await anyio.sleep(1.0)
        assert inside.code is None
        if not stopped:
            await anyio.to_thread.run_sync(own_postgres.server.resume)
            await eventually(lambda: inside.code is not None, 15, describe="it ends")
    assert inside.code is (ExitCode.FAILED if stopped else ExitCode.STOPPED)
    if not stopped:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            assert await rows.count(conn) == 0


async def test_a_listen_dsn_that_leads_nowhere_keeps_nobody_from_beginning(
    dsn: str, conn: psycopg.AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    queue = Queue()
    task, ran = recording(queue)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = WorkerOptions(poll=timedelta(hours=1), listen_dsn=with_options(dsn, port=port))
    with anyio.fail_after(20):
        async with running_worker(queue, dsn, options):
            assert "worker ready" in caplog.text
            assert "listening where listen_dsn leads to: trouble with the database" in caplog.text
            await task.defer(conn, 1)
            await eventually(lambda: ran == [1], describe="it looks by itself")


async def test_a_handler_past_its_timeout_leaves_no_statement_behind_and_its_pool_usable(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue(retry=RetryPolicy(base=timedelta(hours=1)))
    ran: list[int] = []

    async with AsyncConnectionPool(dsn, min_size=1, max_size=1, kwargs={"application_name": "handlers"}) as pool:

        @queue.task(name="sleeps", timeout=timedelta(seconds=1))
        async def sleeps() -> None:
            async with pool.connection() as own:
                await own.execute("select pg_sleep(600)")

        @queue.task(name="next")
        async def after(number: int) -> None:
            async with pool.connection() as own:
                assert own.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                await own.execute("select 1")
            ran.append(number)

        async with running_worker(queue, dsn, RARE):
            job = (await sleeps.defer(conn)).id

            async def failed() -> str | None:
                row = await rows.job(conn, job)
                assert row is not None
                return row["last_error"]

            assert "TimeoutError" in (await eventually(failed, 10, describe="it has failed") or "")
            sleeping = "select count(*) from pg_stat_activity where application_name = 'handlers' and state = 'active'"
            assert await rows.value(conn, sleeping) == 0
            await after.defer(conn, 1)
            await eventually(lambda: ran == [1], describe="the next handler uses the pool")


async def test_a_handler_that_breaks_its_connection_is_a_failed_attempt_like_any_other(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue(max_attempts=3, retry=RetryPolicy(base=timedelta(seconds=0.05)))
    attempts: list[int] = []
    await conn.execute("create table things (id integer primary key)")

    @queue.task(name="breaks")
    async def breaks() -> None:
        attempts.append(current_job().attempts)
        async with await psycopg.AsyncConnection.connect(dsn) as own:
            await own.execute("insert into things values (1)")
            if len(attempts) == 1:
                await own.execute("select pg_terminate_backend(pg_backend_pid())")
            await own.execute("insert into things values (1)")

    async with running_worker(queue, dsn, RARE):
        job = (await breaks.defer(conn)).id

        async def discarded() -> bool:
            return await rows.ids(conn, "discarded") == [job]

        await eventually(discarded, 10, describe="its attempts are used up")
    assert attempts == [1, 2, 3]
    row = await rows.job(conn, job)
    assert row is not None
    assert "UniqueViolation" in row["last_error"]
    assert await rows.value(conn, "select count(*) from things") == 0


async def test_handlers_that_use_up_their_pool_do_not_keep_the_worker_from_its_own_work(
    dsn: str, conn: psycopg.AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    """Each takes a connection of the pool and wants a second one, so that most wait in vain; for several leases."""
    caplog.set_level(logging.INFO, "asyncq.worker")
    queue = Queue(lease=timedelta(seconds=1), max_attempts=1)
    attempts: Counter[int] = Counter()

    async with AsyncConnectionPool(dsn, min_size=4, max_size=4, timeout=3.0) as pool:

        @queue.task(name="greedy")
        async def greedy(number: int) -> None:
            attempts[number] += 1
            async with pool.connection(), pool.connection():
                pass

        task, ran = recording(queue)
        async with running_worker(queue, pool, WorkerOptions(concurrency=10)):
            assert "the pool has 4 connections for 10 slots" in caplog.text

            # All four are taken before anybody gets a second one.
            async with pool.connection(), pool.connection(), pool.connection(), pool.connection():
                await greedy.defer_many(conn, [greedy.args(number) for number in range(8)])
                await eventually(lambda: len(attempts) == 8, describe="all wait for the pool")
                asked = time.perf_counter()
                await task.defer(conn, 1)
                await eventually(lambda: ran == [1], describe="others run meanwhile")
                assert time.perf_counter() - asked < 2

                async def given_up() -> bool:
                    return len(await rows.ids(conn, "discarded")) == 8

                await eventually(given_up, 10, describe="their handlers have failed")
    assert set(attempts.values()) == {1}
    assert "rescued" not in caplog.text
    errors = await rows.rows(conn, "select distinct last_error from asyncq.jobs")
    assert all("PoolTimeout" in error for (error,) in errors)
