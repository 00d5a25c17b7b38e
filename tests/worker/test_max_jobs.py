"""A worker that ends after so many jobs: never one more, none interrupted, and the next process runs what is left."""

import time

import anyio
import psycopg
import pytest

from asyncq import ExitCode, Queue, Worker, WorkerOptions, current_job
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.truth import TruthLog
from tests.worker import app
from tests.worker.inside import recording, running_worker

ENOUGH = "all jobs of max_jobs have been started"


async def waiting(conn: psycopg.AsyncConnection) -> tuple[int, int]:
    """How many jobs are left, and how many of them nobody has touched."""
    cursor = await conn.execute(
        "select count(*), count(*) filter (where state = 'available' and attempts = 0) from asyncq.jobs"
    )
    row = await cursor.fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize("strict", [False, True], ids=["by weight", "strict"])
@pytest.mark.parametrize(("most", "concurrency"), [(1, 100), (37, 10), (100, 100), (250, 1000)])
async def test_it_starts_so_many_and_no_more(
    dsn: str, conn: psycopg.AsyncConnection, most: int, concurrency: int, *, strict: bool
) -> None:
    first, second = Queue("first"), Queue("second")
    task, ran = recording(first)
    args = [task.args(number) for number in range(200)]
    await task.options(priority=1).defer_many(conn, args[:50])
    await task.defer_many(conn, args[50:])
    await task.options(queue="second").defer_many(conn, args)
    options = WorkerOptions(max_jobs=most, concurrency=concurrency, strict=strict)
    with anyio.fail_after(20):
        assert await Worker([first, second], dsn, options).run() is ExitCode.STOPPED
    assert len(ran) == most
    assert await waiting(conn) == (400 - most, 400 - most)


async def test_a_burst_ends_earlier_when_there_is_less(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    task, ran = recording(queue)
    await task.defer_many(conn, [task.args(number) for number in range(25)])
    for options, left in ((WorkerOptions(burst=True, max_jobs=20), 5), (WorkerOptions(burst=True, max_jobs=20), 0)):
        with anyio.fail_after(20):
            assert await Worker([queue], dsn, options).run() is ExitCode.STOPPED
        assert await waiting(conn) == (left, left)
    assert sorted(ran) == list(range(25))


async def test_what_runs_is_waited_for_while_another_worker_takes_what_comes(
    dsn: str, conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--max-jobs", "1", "--grace", "0.1")
    await worker.wait_ready()
    lasting = await app.lasting.defer(conn, 1.5)
    await worker.wait_for(ENOUGH)
    queue = Queue("work")
    seen: list[int] = []

    @queue.task(name=app.quick.name)
    async def quick(number: int) -> None:
        seen.append(current_job().attempts)

    async with running_worker(queue, dsn):
        # Each by itself: a lock that the first worker still held would keep the second from being told.
        for count in range(1, 4):
            await quick.defer(conn, count)
            await eventually(lambda wanted=count: len(seen) == wanted, describe="the other worker runs it")
        assert await worker.wait() == 0
    assert seen == [1, 1, 1]
    assert await truth.counts("end") == {lasting.id: 1}
    assert await waiting(conn) == (0, 0)


async def test_a_first_signal_meanwhile_is_a_first_signal(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--max-jobs", "2", "--grace", "3")
    await worker.wait_ready()
    brief = await app.lasting.defer(conn, 1.0)
    await app.lasting.defer(conn, 3600.0)
    await worker.wait_for(ENOUGH)
    asked = time.monotonic()
    worker.terminate()
    assert await worker.wait() == 0
    assert 2.9 < time.monotonic() - asked < 12
    assert await truth.counts("end") == {brief.id: 1}
    # Given back with its attempt.
    assert await waiting(conn) == (1, 1)


async def test_a_second_signal_meanwhile_stops_at_once(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--max-jobs", "1", "--grace", "600")
    await worker.wait_ready()
    await app.lasting.defer(conn, 3600.0)
    await worker.wait_for(ENOUGH)
    worker.terminate()
    await worker.wait_for("stopping")
    worker.terminate()
    assert await worker.wait() == 5
    assert await waiting(conn) == (1, 1)
