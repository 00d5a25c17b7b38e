"""A handler that raises has failed: its job runs again, later each time, until its attempts are used up."""

from datetime import timedelta

import psycopg
import pytest

from asyncq import Queue, Retry, RetryPolicy, current_job
from tests.fundamentals.conftest import Work

Connection = psycopg.AsyncConnection

AT_ONCE = RetryPolicy(backoff=lambda attempts, error: timedelta(0))

payments = Queue("payments", retry=AT_ONCE, max_attempts=3)

attempts: list[int] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    attempts.clear()


@payments.task
async def charge(succeeds_at: int) -> None:
    attempts.append(current_job().attempts)
    if current_job().attempts < succeeds_at:
        raise ConnectionError("the bank does not answer")


@payments.task(retry=RetryPolicy(base=timedelta(minutes=1), factor=10, longest=timedelta(days=1), jitter=0))
async def patient() -> None:
    raise ConnectionError("the bank does not answer")


@payments.task(retry=RetryPolicy(give_up_on=(PermissionError,)))
async def forbidden() -> None:
    attempts.append(current_job().attempts)
    raise PermissionError("the card is blocked")


@payments.task
async def asks_for_a_retry(delay: int) -> None:
    attempts.append(current_job().attempts)
    raise Retry(delay=timedelta(seconds=delay), reason="the bank is closed")


async def test_a_failed_job_runs_again(conn: Connection, work: Work) -> None:
    await charge.defer(conn, 3)
    await work(payments)
    assert attempts == [1, 2, 3]
    assert await payments.discarded(conn) == []


async def test_a_job_whose_attempts_are_used_up_is_discarded_with_its_last_error(conn: Connection, work: Work) -> None:
    deferred = await charge.defer(conn, 99)
    await work(payments)
    assert attempts == [1, 2, 3]
    [dead] = await payments.discarded(conn)
    assert (dead.id, dead.attempts) == (deferred.id, 3)
    assert dead.last_error is not None
    assert "ConnectionError: the bank does not answer" in dead.last_error


async def test_the_policy_says_when(conn: Connection, work: Work) -> None:
    deferred = await patient.defer(conn)
    for minutes in (10, 100):
        await work(payments)
        cursor = await conn.execute(
            "update asyncq.jobs set run_at = now() where id = %s and run_at > now() + %s returning 1",
            (deferred.id, timedelta(minutes=minutes * 0.9)),
        )
        assert cursor.rowcount == 1, f"it waits for {minutes} minutes"


async def test_some_failures_are_final(conn: Connection, work: Work) -> None:
    await forbidden.defer(conn)
    await work(payments)
    assert attempts == [1]
    assert len(await payments.discarded(conn)) == 1


async def test_a_handler_can_ask_for_a_retry_and_say_when(conn: Connection, work: Work) -> None:
    await asks_for_a_retry.defer(conn, 0)
    await work(payments)
    # It counts like any other attempt.
    assert attempts == [1, 2, 3]
    [dead] = await payments.discarded(conn)
    assert dead.last_error == "the bank is closed"


async def test_a_retry_later_is_later(conn: Connection, work: Work) -> None:
    deferred = await asks_for_a_retry.defer(conn, 3600)
    await work(payments)
    cursor = await conn.execute("select run_at - now() from asyncq.jobs where id = %s", (deferred.id,))
    row = await cursor.fetchone()
    assert row is not None
    assert timedelta(minutes=59) < row[0] <= timedelta(hours=1)


async def test_one_failing_job_does_not_hold_up_the_others(conn: Connection, work: Work) -> None:
    await patient.defer(conn)
    await charge.defer_many(conn, [charge.args(1) for _ in range(20)])
    await work(payments, concurrency=2)
    assert attempts == [1] * 20
