"""Reading on in a lane forgets nothing: late commits, jobs put into the past, and rows put in by hand."""

from datetime import datetime, timedelta
from time import perf_counter

import anyio
import psycopg
import pytest

from asyncq import Queue, WorkerOptions
from tests.eventually import eventually
from tests.servers import majors
from tests.worker.inside import recording, running_worker

NEVER = WorkerOptions(poll=timedelta(minutes=10))
"""No poll comes to the rescue."""


@pytest.fixture
def queue() -> Queue:
    return Queue("lanes")


@majors(12, 18)
async def test_what_commits_late_starts_within_a_second_behind_a_stream_of_others(
    dsn: str, conn: psycopg.AsyncConnection, tx_conn: psycopg.AsyncConnection, queue: Queue
) -> None:
    task, ran = recording(queue)

    async with running_worker(queue, dsn, NEVER):
        await task.defer(tx_conn, -1)
        await task.options(priority=5).defer(tx_conn, -2)
        await task.options(priority=-5).defer_many(tx_conn, [task.args(number) for number in range(-40, -10)])
        # Long enough for the positions to move past what is not committed yet.
        until = perf_counter() + 3.0
        stream = 0
        while perf_counter() < until:
            await task.defer_many(conn, [task.args(stream + number) for number in range(50)])
            stream += 50
            await anyio.sleep(0.02)
        assert not any(number < 0 for number in ran)
        await tx_conn.commit()
        committed = perf_counter()
        await eventually(lambda: sum(number < 0 for number in ran) == 32, describe="all of it ran")
        assert perf_counter() - committed < 1.0
        await eventually(lambda: len(ran) == stream + 32, describe="everything ran")


async def test_a_job_put_into_the_past_starts_at_once(dsn: str, conn: psycopg.AsyncConnection, queue: Queue) -> None:
    task, ran = recording(queue)

    async with running_worker(queue, dsn, NEVER):
        await task.defer_many(conn, [task.args(number) for number in range(100)])
        await eventually(lambda: len(ran) == 100, describe="they ran")
        # The safe positions follow within a few rounds.
        await anyio.sleep(2.5)
        row = await (await conn.execute("select now() - interval '1 day'")).fetchone()
        assert row is not None
        yesterday: datetime = row[0]
        asked = perf_counter()
        await task.options(run_at=yesterday).defer(conn, 1_000)
        await task.options(run_at=yesterday, priority=3).defer_many(conn, [task.args(1_001)])
        await conn.execute(
            "select asyncq.defer('task', '{\"number\": 1002}', queue => 'lanes', run_at => now() - interval '1 hour')"
        )
        await eventually(lambda: len(ran) == 103, describe="those of yesterday ran")
        assert perf_counter() - asked < 1.0
    assert sorted(ran[100:]) == [1_000, 1_001, 1_002]


async def test_a_row_put_in_by_hand_with_an_old_time_starts_at_the_poll(
    dsn: str, conn: psycopg.AsyncConnection, queue: Queue
) -> None:
    task, ran = recording(queue)

    async with running_worker(queue, dsn, WorkerOptions(poll=timedelta(seconds=1))):
        await task.defer_many(conn, [task.args(number) for number in range(100)])
        await eventually(lambda: len(ran) == 100, describe="they ran")
        await anyio.sleep(2.5)
        await conn.execute(
            "insert into asyncq.jobs (queue, task, args, run_at, priority) values"
            " ('lanes', 'task', '{\"number\": 1000}', now() - interval '1 year', 0),"
            " ('lanes', 'task', '{\"number\": 1001}', '-infinity', 0),"
            " ('lanes', 'task', '{\"number\": 1002}', now() - interval '1 year', -7)"
        )
        await eventually(lambda: len(ran) == 103, 4, describe="the old ones ran")


@majors(12, 18)
async def test_jobs_of_unknown_tasks_at_the_head_are_walked_once_and_not_for_each_job_behind(
    dsn: str, conn: psycopg.AsyncConnection, queue: Queue
) -> None:
    task, ran = recording(queue)
    unknown, single = 50_000, 40

    await conn.execute(
        "insert into asyncq.jobs (queue, task, run_at, priority) select 'lanes', 'unknown', '2024-01-01', n %% 2"
        " from generate_series(1, %s) n",
        (unknown,),
    )
    async with running_worker(queue, dsn, NEVER):
        await task.defer_many(conn, [task.args(number) for number in range(2_000)])
        await eventually(lambda: len(ran) == 2_000, 20, describe="those it knows ran")
        await anyio.sleep(2.5)
        for number in range(single):
            await task.defer(conn, 10_000 + number)
            await eventually(lambda wanted=2_001 + number: len(ran) == wanted, describe="it ran")
    assert sorted(ran) == [*range(2_000), *range(10_000, 10_000 + single)]

    # Each of the single jobs would walk them all; until the positions have moved, a handful of looks does. A session
    # reports what it read at the latest when it ends, and the worker's have ended.
    assert await index_rows_read(conn) < unknown * single / 2


async def index_rows_read(conn: psycopg.AsyncConnection) -> int:
    """How many entries of the indexes on jobs were read since the database was made."""
    row = await (
        await conn.execute("select sum(idx_tup_read)::bigint from pg_stat_user_indexes where relname = 'jobs'")
    ).fetchone()
    assert row is not None
    return row[0]
