"""What handlers may do, and what it does to their job and to their neighbours."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from typing import NoReturn

import anyio
import psycopg
import pytest

from asyncq import Cancel, Queue, Retry, RetryPolicy, Snooze, WorkerOptions, current_job
from tests.eventually import eventually
from tests.sql.rows import value
from tests.worker.inside import running_worker

soon = RetryPolicy(base=timedelta(milliseconds=10), factor=1.0)


async def count(conn: psycopg.AsyncConnection) -> int:
    cursor = await conn.execute("select count(*) from asyncq.jobs")
    row = await cursor.fetchone()
    assert row is not None
    return row[0]


async def emptied(conn: psycopg.AsyncConnection) -> bool:
    return await count(conn) == 0


async def one_discarded(queue: Queue, conn: psycopg.AsyncConnection) -> bool:
    return len(await queue.discarded(conn)) == 1


def exits() -> NoReturn:
    sys.exit(3)


def interrupts() -> NoReturn:
    raise KeyboardInterrupt


def stops() -> NoReturn:
    raise StopIteration


def base() -> NoReturn:
    raise BaseException("x")  # noqa: TRY002 - on purpose


def cancels_itself() -> NoReturn:
    raise asyncio.CancelledError


def closes() -> NoReturn:
    raise GeneratorExit


@pytest.mark.parametrize("raises", [exits, interrupts, stops, base, cancels_itself, closes])
@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
async def test_whatever_a_handler_raises_is_a_failed_attempt_and_nothing_more(
    dsn: str, conn: psycopg.AsyncConnection, raises: Callable[[], NoReturn], *, in_thread: bool
) -> None:
    queue = Queue(max_attempts=2, retry=soon)
    ended: list[int] = []

    async def bad_async() -> None:
        raises()

    def bad_thread() -> None:
        raises()

    bad = queue.task(name="bad")(bad_thread) if in_thread else queue.task(name="bad")(bad_async)

    @queue.task(name="long")
    async def long(number: int) -> None:
        await asyncio.sleep(0.3)
        ended.append(number)

    async with running_worker(queue, dsn):
        await long.defer_many(conn, [long.args(number) for number in range(9)])
        await bad.defer(conn)
        await eventually(lambda: one_discarded(queue, conn), describe="the bad job is discarded")
        await eventually(lambda: len(ended) == 9, describe="its neighbours end")
    (job,) = await queue.discarded(conn)
    assert job.attempts == 2
    assert await count(conn) == 1


async def test_signals_of_a_handler(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue(max_attempts=3)
    attempts: list[int] = []

    @queue.task(name="retries")
    async def retries() -> None:
        attempts.append(current_job().attempts)
        raise Retry(delay=0.01, reason="not yet")

    @queue.task(name="snoozes")
    async def snoozes() -> None:
        attempts.append(current_job().attempts)
        if len(attempts) < 20:
            raise Snooze(0.01)

    @queue.task(name="cancels")
    async def cancels() -> None:
        raise Cancel("the customer is gone")

    async with running_worker(queue, dsn):
        await retries.defer(conn)
        await eventually(lambda: one_discarded(queue, conn), describe="retries are used up")
        assert attempts == [1, 2, 3]
        assert (await queue.discarded(conn))[0].last_error == "not yet"
        attempts.clear()
        await snoozes.defer(conn)
        await eventually(lambda: len(attempts) == 20, describe="it was snoozed 19 times")
        assert set(attempts) == {1}
        deferred = await cancels.defer(conn)

        async def cancelled() -> tuple[object, ...] | None:
            cursor = await conn.execute(
                "select last_error from asyncq.jobs where state = 'cancelled' and id = %s", (deferred.id,)
            )
            return await cursor.fetchone()

        assert await eventually(cancelled, describe="it is cancelled") == ("the customer is gone",)


async def test_an_async_handler_past_its_timeout_is_cancelled_and_has_failed(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue(max_attempts=1)
    seen: list[str] = []

    @queue.task(name="slow", timeout=timedelta(seconds=0.1))
    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            assert current_job().cancel_requested
            raise

    async with running_worker(queue, dsn):
        await slow.defer(conn)
        await eventually(lambda: one_discarded(queue, conn), describe="it failed")
    assert seen == ["cancelled"]
    (job,) = await queue.discarded(conn)
    assert "TimeoutError" in (job.last_error or "")
    # Where it was waiting is what one wants to know.
    assert "await asyncio.sleep(3600)" in (job.last_error or "")


async def test_a_thread_past_its_timeout_keeps_its_row_until_it_ends_and_has_failed(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue(max_attempts=2, retry=soon, lease=timedelta(seconds=0.5))
    running = threading.Lock()
    overlaps: list[str] = []
    told: list[bool] = []

    @queue.task(name="slow", timeout=timedelta(seconds=0.1))
    def slow() -> None:
        if not running.acquire(blocking=False):
            overlaps.append("two at once")
            return
        time.sleep(1.5)
        told.append(current_job().cancel_requested)
        running.release()

    async with running_worker(queue, dsn):
        await slow.defer(conn)

        async def told_once() -> bool:
            cursor = await conn.execute("select state from asyncq.jobs")
            assert await cursor.fetchone() == ("running",)
            return bool(told) or anyio.current_time() > late

        late = anyio.current_time() + 1.2
        await eventually(told_once, describe="its row stays running")
        await eventually(lambda: one_discarded(queue, conn), describe="it failed twice")
    assert told == [True, True]
    assert overlaps == []
    (job,) = await queue.discarded(conn)
    assert job.attempts == 2
    assert "TimeoutError" in (job.last_error or "")


async def test_each_job_starts_from_a_clean_context(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    user: ContextVar[str] = ContextVar("user", default="nobody")
    seen: list[str] = []

    @queue.task(name="look")
    async def look(name: str) -> None:
        seen.append(user.get())
        user.set(name)

    @queue.task(name="look_in_thread")
    def look_in_thread(name: str) -> None:
        seen.append(user.get())
        user.set(name)

    user.set("the host")
    async with running_worker(queue, dsn, WorkerOptions(concurrency=1)):
        for name in ("ann", "ben", "cat"):
            await look.defer(conn, name)
            await look_in_thread.defer(conn, name)
        await eventually(lambda: len(seen) == 6, describe="all ran")
    assert seen == ["nobody"] * 6


async def test_no_more_jobs_run_at_once_than_there_are_slots(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    now: list[int] = [0]
    most: list[int] = [0]

    async def enter() -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.01)
        now[0] -= 1

    @queue.task(name="counted")
    async def counted() -> None:
        await enter()

    async with running_worker(queue, dsn, WorkerOptions(concurrency=7)):
        await counted.defer_many(conn, [counted.args() for _ in range(100)])
        await eventually(lambda: emptied(conn), 10, describe="all ran")
    assert most == [7]


async def test_args_that_no_longer_fit_are_a_failed_attempt_and_what_is_no_object_is_discarded(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue(max_attempts=3, retry=soon)
    ran: list[int] = []

    @queue.task(name="fits")
    async def fits(number: int) -> None:
        ran.append(number)

    await conn.execute(
        """insert into asyncq.jobs (queue, task, args, max_attempts) values
        ('default', 'fits', '{"number": 1}', 3), ('default', 'fits', '{"number": "secret text"}', 3),
        ('default', 'fits', '{"number": 2, "more": 3}', 3), ('default', 'fits', '[1]', 3),
        ('default', 'fits', '{"number": 3}', 3)"""
    )
    async with running_worker(queue, dsn):

        async def three() -> bool:
            return len(await queue.discarded(conn)) == 3

        await eventually(three, describe="what does not fit is discarded")
    assert sorted(ran) == [1, 3]
    errors = {job.args_json: (job.attempts, job.last_error or "") for job in await queue.discarded(conn)}
    assert {args: attempts for args, (attempts, _) in errors.items()} == {
        '{"number": "secret text"}': 3,
        '{"more": 3, "number": 2}': 3,
        "[1]": 1,
    }
    assert "number" in errors['{"number": "secret text"}'][1]
    assert "secret text" not in errors['{"number": "secret text"}'][1]
    assert await count(conn) == 3


async def test_a_job_put_in_by_another_queues_object_runs_where_its_task_is_known(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue, other = Queue("here"), Queue("there")
    ran: list[str] = []

    @queue.task(name="task")
    async def task() -> None:
        ran.append(current_job().queue)

    async with running_worker([queue, other], dsn):
        await task.options(queue="there").defer(conn)
        await conn.execute("select asyncq.defer('task', queue => 'here')")
        await eventually(lambda: sorted(ran) == ["here", "there"], describe="both ran")


async def test_unknown_tasks_are_left_alone(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    ran: list[int] = []

    @queue.task(name="known", aliases=["its.old.name"])
    async def known() -> None:
        ran.append(1)

    await conn.execute("insert into asyncq.jobs (queue, task) select 'default', 'unknown' from generate_series(1, 500)")
    async with running_worker(queue, dsn):
        await known.defer(conn)
        await conn.execute("select asyncq.defer('its.old.name')")
        await eventually(lambda: len(ran) == 2, describe="the known ones run")
    cursor = await conn.execute("select count(*), max(attempts) from asyncq.jobs where state = 'available'")
    assert await cursor.fetchone() == (500, 0)


async def test_a_failing_backoff_function_does_not_lose_the_job(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()

    def broken(attempts: int, error: BaseException) -> timedelta:
        raise RuntimeError("no idea")

    @queue.task(name="bad", retry=broken)
    async def bad() -> None:
        raise ValueError("x")

    async with running_worker(queue, dsn):
        await bad.defer(conn)

        async def waits() -> tuple[object, ...] | None:
            cursor = await conn.execute(
                "select 1 from asyncq.jobs where state = 'available' and attempts = 1"
                " and run_at between now() and now() + interval '2 s' and last_error like '%ValueError: x'"
            )
            return await cursor.fetchone()

        await eventually(waits, describe="it is to be retried as by default")


async def test_what_a_plain_function_gives_to_await_is_cancelled_past_the_timeout(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue(max_attempts=1)
    ends: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    @queue.task(name="wrapped", timeout=timedelta(seconds=0.1))
    def wrapped() -> Coroutine[None, None, None]:
        time.sleep(0.3)
        return slow()

    async with running_worker(queue, dsn):
        await wrapped.defer(conn)
        await eventually(lambda: one_discarded(queue, conn), describe="it failed")
    assert ends == ["cancelled"]
    assert "TimeoutError" in ((await queue.discarded(conn))[0].last_error or "")


async def test_a_log_filter_that_raises_loses_no_outcome_and_is_told_of(
    dsn: str, conn: psycopg.AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue(max_attempts=1)

    @queue.task(name="bad")
    async def bad() -> None:
        raise ValueError("x")

    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if "is discarded" in record.getMessage():
                raise RuntimeError("a broken filter")
            return True

    broken = Broken()
    logging.getLogger("asyncq.worker").addFilter(broken)
    try:
        async with running_worker(queue, dsn):
            for number in (1, 2):
                await bad.defer(conn)

                async def discarded(number: int = number) -> bool:
                    return await value(conn, "select count(*) from asyncq.jobs where state = 'discarded'") == number

                await eventually(discarded, describe="the outcome is written")
        assert caplog.text.count("RuntimeError: a broken filter") == 1
    finally:
        logging.getLogger("asyncq.worker").removeFilter(broken)
