"""Workers that die or freeze in mid-job."""

import time
from datetime import timedelta
from typing import Any

import anyio
import psycopg
import pytest

from asyncq import Queue, current_job
from asyncq.db import jobs
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.truth import TruthLog
from tests.worker import app
from tests.worker.inside import running_worker


async def started(truth: TruthLog, job_id: int, times: int = 1) -> bool:
    return len(await truth.rows(job_id, "start")) >= times


async def rows(conn: psycopg.AsyncConnection) -> int:
    cursor = await conn.execute("select count(*) from asyncq.jobs")
    row = await cursor.fetchone()
    assert row is not None
    return row[0]


async def test_the_job_of_a_killed_worker_runs_again_elsewhere(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    first = start_worker("tests.worker.app")
    await first.wait_ready()
    deferred = await app.lasting.defer(conn, 3600.0)
    await eventually(lambda: started(truth, deferred.id), describe="the job starts")
    second = start_worker("tests.worker.app")
    await second.wait_ready()
    first.kill()
    killed = time.monotonic()
    lease = app.work.lease.total_seconds()
    await eventually(lambda: started(truth, deferred.id, 2), lease + 5, describe="the job runs again")
    assert time.monotonic() - killed < lease + 5
    one, two = await truth.rows(deferred.id, "start")
    assert (one.pid, two.pid) == (first.pid, second.pid)
    assert (one.attempt, two.attempt) == (1, 2)


async def test_a_job_that_kills_its_worker_is_discarded_after_its_attempts(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    deferred = await app.killing.options(max_attempts=3).defer(conn)
    for attempt in (1, 2, 3):
        worker = start_worker("tests.worker.app")
        assert await worker.wait(20) == -9
        assert [entry.attempt for entry in await truth.rows(deferred.id)] == list(range(1, attempt + 1))
    last = start_worker("tests.worker.app")
    await last.wait_ready()

    async def discarded() -> bool:
        return [job.id for job in await app.work.discarded(conn)] == [deferred.id]

    await eventually(discarded, 10, describe="the job is discarded")
    (job,) = await app.work.discarded(conn)
    assert job.attempts == 3
    assert "died" in (job.last_error or "")
    assert len(await truth.rows(deferred.id)) == 3


async def test_a_handler_that_outlives_many_leases_is_not_rescued(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    workers = [start_worker("tests.worker.app") for _ in range(2)]
    for worker in workers:
        await worker.wait_ready()
    deferred = await app.lasting.defer(conn, 6 * app.work.lease.total_seconds())

    async def ended() -> bool:
        return bool(await truth.rows(deferred.id, "end"))

    await eventually(ended, 15, describe="the long job ends")
    assert len(await truth.rows(deferred.id, "start")) == 1
    assert not any("rescued" in worker.stderr for worker in workers)

    async def gone() -> bool:
        return await rows(conn) == 0

    await eventually(gone, describe="its row is deleted")


async def test_a_worker_that_was_frozen_cannot_touch_what_was_given_away(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    first = start_worker("tests.worker.app")
    await first.wait_ready()
    deferred = await app.slow_at_first.defer(conn)
    await eventually(lambda: started(truth, deferred.id), describe="the job starts")
    first.stop()
    second = start_worker("tests.worker.app")
    await second.wait_ready()
    await eventually(lambda: started(truth, deferred.id, 2), 15, describe="the second worker has it")
    first.cont()
    await first.wait_for("lease was lost")

    async def ended() -> list[int]:
        return [entry.pid for entry in await truth.rows(deferred.id, "end")]

    await eventually(ended, 10, describe="a run ends")
    assert await ended() == [second.pid]

    async def gone() -> bool:
        return await rows(conn) == 0

    await eventually(gone, describe="the row is deleted by its holder")
    assert "lost" not in second.stderr
    # The first stays healthy for other jobs.
    second.terminate()
    assert await second.wait() == 0
    other = await app.quick.defer(conn, 1)
    await eventually(lambda: started(truth, other.id), describe="the thawed worker runs another job")


async def test_the_same_worker_runs_a_job_it_lost_only_once_its_first_run_has_ended(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    """The only worker loses a lease, rescues the job itself, and its handler does not end."""
    worker = start_worker("tests.worker.app", "--grace", "0")
    await worker.wait_ready()
    deferred = await app.stubborn.defer(conn)
    await eventually(lambda: started(truth, deferred.id), describe="the job starts")
    await conn.execute(
        "update asyncq.jobs set state = 'available', lease_token = null, leased_until = null, locked_by = null"
    )
    await conn.execute("notify asyncq, 'work'")
    await worker.wait_for("lease was lost")
    other = await app.quick.defer(conn, 1)
    await eventually(lambda: started(truth, other.id), describe="the worker goes on with other jobs")
    cursor = await conn.execute("select attempts, state from asyncq.jobs where id = %s", (deferred.id,))
    assert await cursor.fetchone() == (1, "available")
    assert len(await truth.rows(deferred.id, "start")) == 1


async def test_a_kept_global_lock_that_outlives_its_lease_cannot_finish_for_its_successor(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    first = start_worker("tests.worker.app")
    await first.wait_ready()
    deferred = await app.keeping_the_lock.options(max_attempts=5).defer(conn, 9.0)
    await eventually(lambda: started(truth, deferred.id), describe="the job starts")
    second = start_worker("tests.worker.app", "--grace", "0")
    await second.wait_ready()
    await eventually(lambda: started(truth, deferred.id, 2), 9, describe="it was rescued and runs again")
    await first.wait_for("its outcome is dropped", 15)
    cursor = await conn.execute("select attempts, state, locked_by from asyncq.jobs where id = %s", (deferred.id,))
    row = await cursor.fetchone()
    assert row is not None
    assert row[:2] == (2, "running")
    assert f":{second.pid}:" in row[2]


def test_the_lease_of_these_tests_is_short() -> None:
    assert app.work.lease == timedelta(seconds=1)


async def test_an_answer_that_is_older_than_its_leases_starts_nothing(
    dsn: str, conn: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be frozen while a claim is under way: what it claimed then runs elsewhere when it thaws."""
    queue = Queue(lease=timedelta(seconds=1))
    held: list[bool] = []
    claim = jobs.claim
    late: list[int] = []

    @queue.task(name="task")
    async def task() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as own:
            cursor = await own.execute(
                "select leased_until > now() from asyncq.jobs where id = %s", (current_job().id,)
            )
            held.append(await cursor.fetchone() == (True,))

    async def claim_late(*args: Any, **params: Any) -> jobs.Claim:
        claimed = await claim(*args, **params)
        if claimed.rows and not late:
            late.extend(row.id for row in claimed.rows)
            await anyio.sleep(1.2)
        return claimed

    monkeypatch.setattr(jobs, "claim", claim_late)
    deferred = await task.defer(conn)
    async with running_worker(queue, dsn):
        await eventually(lambda: held, describe="the job starts")
    assert late == [deferred.id]
    assert held == [True]
