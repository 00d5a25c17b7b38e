"""What happens in a worker is said once, to whoever subscribed."""

import logging
from datetime import timedelta

import anyio
import psycopg
import pytest

from asyncq import Cancel, JobState, Queue, RetryPolicy, Snooze, Worker, WorkerOptions, current_job
from asyncq.events import (
    Event,
    Events,
    JobFinished,
    JobRescued,
    JobsClaimed,
    JobStarted,
    OutcomesWritten,
    WorkerDraining,
    WorkerStarted,
    WorkerStopped,
)
from tests.eventually import eventually
from tests.sql.rows import value
from tests.worker.inside import running_worker

KINDS: tuple[type[Event], ...] = (
    JobStarted, JobFinished, JobRescued, JobsClaimed, OutcomesWritten, WorkerStarted, WorkerDraining, WorkerStopped,
)  # fmt: skip


def listen_to(worker: Worker) -> list[Event]:
    heard: list[Event] = []
    for kind in KINDS:
        worker.events.subscribe(kind, heard.append)
    return heard


async def test_each_run_is_said_with_its_outcome(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue("shop", max_attempts=2, retry=RetryPolicy(base=timedelta(milliseconds=1)))

    @queue.task(name="work")
    async def work(how: str) -> None:
        match how, current_job().attempts:
            case "fails once", 1:
                raise LookupError("no")
            case "fails", _:
                raise ZeroDivisionError
            case "snoozes", 1 if not snoozed.is_set():
                snoozed.set()
                raise Snooze(timedelta(milliseconds=1))
            case "cancels", _:
                raise Cancel("enough")
            case _:
                await anyio.sleep(0.02)

    snoozed = anyio.Event()
    ids = {how: (await work.defer(conn, how)).id for how in ("works", "fails once", "fails", "snoozes", "cancels")}
    await conn.execute("update asyncq.jobs set run_at = run_at - interval '1 hour' where id = %s", (ids["works"],))
    worker = Worker([queue], dsn, WorkerOptions(burst=True))
    heard = listen_to(worker)
    await worker.run()
    ended = [event for event in heard if isinstance(event, JobFinished)]
    said = {how: [type(event.outcome).__name__ for event in ended if event.job.id == ids[how]] for how in ids}
    assert said == {
        "works": ["Completed"],
        "fails once": ["Retried", "Completed"],
        "fails": ["Retried", "Discarded"],
        "snoozes": ["Snoozed", "Completed"],
        "cancels": ["Cancelled"],
    }
    (works,) = (event for event in ended if event.job.id == ids["works"])
    assert 0.015 < works.seconds < 5
    assert 3_600 <= works.waited < 3_660
    failures = [event for event in ended if event.job.id in (ids["fails once"], ids["fails"])]
    assert sorted((event.error_type or "-") for event in failures) == [
        "-", "LookupError", "ZeroDivisionError", "ZeroDivisionError",
    ]  # fmt: skip
    started = [event.job.id for event in heard if isinstance(event, JobStarted)]
    assert sorted(started) == sorted(event.job.id for event in ended)
    assert sum(event.jobs for event in heard if isinstance(event, JobsClaimed)) == len(ended) == 8
    assert [type(event) for event in heard if type(event).__name__.startswith("Worker")] == [
        WorkerStarted, WorkerStopped,
    ]  # fmt: skip
    written = [event for event in heard if isinstance(event, OutcomesWritten)]
    assert sum(event.jobs for event in written) >= 5
    assert all(0 < event.seconds < 5 for event in written)


async def test_a_start_and_its_end_are_said_in_the_context_of_the_handler(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue()
    seen: list[int] = []

    @queue.task(name="work")
    def work() -> None:
        seen.append(current_job().id)

    deferred = await work.defer(conn)
    worker = Worker([queue], dsn, WorkerOptions(burst=True))
    worker.events.subscribe(JobStarted, lambda event: seen.append(current_job().id))
    worker.events.subscribe(JobFinished, lambda event: seen.append(current_job().id))
    await worker.run()
    assert seen == [deferred.id] * 3


async def test_a_subscriber_that_fails_changes_nothing_and_is_told_of_once(
    dsn: str, conn: psycopg.AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue()

    @queue.task(name="work")
    async def work() -> None: ...

    def fail(event: JobFinished) -> None:
        raise RuntimeError("broken")

    heard: list[JobFinished] = []
    await work.defer_many(conn, [work.args()] * 5)
    worker = Worker([queue], dsn, WorkerOptions(burst=True))
    worker.events.subscribe(JobFinished, fail)
    worker.events.subscribe(JobFinished, heard.append)
    await worker.run()
    assert len(heard) == 5
    assert await value(conn, "select count(*) from asyncq.jobs") == 0
    assert caplog.text.count("a subscriber to JobFinished failed") == 1
    assert caplog.text.count("RuntimeError: broken") == 1


async def test_a_rescue_is_said(dsn: str, conn: psycopg.AsyncConnection, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "asyncq.worker")
    queue = Queue("shop", lease=timedelta(seconds=1))

    @queue.task(name="work")
    async def work() -> None: ...

    deferred = await work.defer(conn)
    await conn.execute(
        "update asyncq.jobs set state = 'running', attempts = max_attempts, lease_token = 1, locked_by = 'gone',"
        " attempted_at = now(), leased_until = now() - interval '1 second'"
    )
    heard: list[JobRescued] = []
    async with running_worker(queue, dsn, WorkerOptions()) as inside:
        inside.worker.events.subscribe(JobRescued, heard.append)
        await eventually(lambda: bool(heard), 15)
    assert heard == [JobRescued(deferred.id, "shop", "work", JobState.DISCARDED, 10, "gone")]
    assert "was rescued from worker gone" in caplog.text


def test_nobody_need_listen() -> None:
    events = Events()
    assert not events.wanted(JobsClaimed)
    events.emit(JobsClaimed(1, 0.1))
    events.subscribe(JobsClaimed, lambda event: None)
    assert events.wanted(JobsClaimed)
