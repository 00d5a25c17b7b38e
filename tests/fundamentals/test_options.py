"""Options choose when, where and how often a job runs: the call's over the task's over the queue's."""

from datetime import UTC, datetime, timedelta

import anyio
import psycopg
import pytest

from asyncq import Queue, Worker, WorkerOptions, current_job
from tests.fundamentals.conftest import Work

Connection = psycopg.AsyncConnection

images = Queue("images", max_attempts=5)
urgent = Queue("urgent")

ran: list[str] = []


@images.task
async def resize(name: str) -> None:
    ran.append(f"{name} in {current_job().queue}, at most {current_job().max_attempts} times")


@images.task(max_attempts=2, priority=10)
async def crop(name: str) -> None:
    ran.append(f"{name} in {current_job().queue}, at most {current_job().max_attempts} times")


@pytest.fixture(autouse=True)
def forget() -> None:
    ran.clear()


async def test_a_task_has_its_queues_options_or_its_own(conn: Connection, work: Work) -> None:
    await resize.defer(conn, "a")
    await crop.defer(conn, "b")
    await work(images, concurrency=1)
    # The second has a higher priority.
    assert ran == ["b in images, at most 2 times", "a in images, at most 5 times"]


async def test_a_call_has_options_of_its_own(conn: Connection, work: Work) -> None:
    await crop.options(max_attempts=7).defer(conn, "c")
    await crop.defer(conn, "d")
    await work(images, concurrency=1)
    assert ran == ["c in images, at most 7 times", "d in images, at most 2 times"]


async def test_a_delayed_job_waits(conn: Connection, work: Work) -> None:
    deferred = await resize.options(delay=timedelta(hours=1)).defer(conn, "later")
    await work(images)
    assert ran == []

    await conn.execute("update asyncq.jobs set run_at = now() where id = %s", (deferred.id,))
    await work(images)
    assert len(ran) == 1


async def test_a_job_can_run_at_a_time_and_one_in_the_past_means_now(conn: Connection, work: Work) -> None:
    past = await resize.options(run_at=datetime(2024, 1, 1, tzinfo=UTC)).defer(conn, "past")
    future = await resize.options(run_at=datetime(2124, 1, 1, tzinfo=UTC)).defer(conn, "future")
    assert (past.run_at.year, future.run_at.year) == (2024, 2124)
    await work(images)
    assert [each.split()[0] for each in ran] == ["past"]


async def test_a_job_can_go_to_another_queue_whose_worker_knows_the_task(conn: Connection, dsn: str) -> None:
    await resize.options(queue="urgent").defer(conn, "e")
    worker = Worker([urgent], dsn, WorkerOptions(burst=True), registry=[images])
    with anyio.fail_after(20):
        await worker.run()
    assert ran == ["e in urgent, at most 5 times"]


async def test_options_can_be_kept_and_used_again(conn: Connection, work: Work) -> None:
    important = resize.options(priority=100)
    await resize.defer(conn, "usual")
    await important.defer(conn, "first")
    await important.defer_many(conn, [resize.args("second"), resize.args("third")])
    await work(images, concurrency=1)
    assert [each.split()[0] for each in ran] == ["first", "second", "third", "usual"]
