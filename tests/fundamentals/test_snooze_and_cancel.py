"""A handler can end its run on purpose: not now (Snooze), or never again (Cancel)."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from asyncq import Cancel, Queue, Snooze, current_job
from tests.fundamentals.conftest import Work

Connection = psycopg.AsyncConnection

orders = Queue("orders", max_attempts=2)

attempts: list[int] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    attempts.clear()


@orders.task
async def ship(ready_at_run: int, delay: int = 0) -> None:
    attempts.append(current_job().attempts)
    if len(attempts) < ready_at_run:
        raise Snooze(timedelta(seconds=delay))


@orders.task
async def remind(user_id: int) -> None:
    raise Cancel(f"user {user_id} is gone")


async def row(conn: Connection, job_id: int) -> tuple[Any, ...] | None:
    cursor = await conn.execute("select state, attempts, last_error from asyncq.jobs where id = %s", (job_id,))
    return await cursor.fetchone()


async def test_a_snoozed_job_runs_again_without_using_up_an_attempt(conn: Connection, work: Work) -> None:
    deferred = await ship.defer(conn, 5)
    await work(orders)
    assert attempts == [1, 1, 1, 1, 1]
    assert await row(conn, deferred.id) is None


async def test_a_snoozed_job_waits_for_as_long_as_it_asked(conn: Connection, work: Work) -> None:
    deferred = await ship.defer(conn, 5, delay=3600)
    await work(orders)
    assert attempts == [1]
    cursor = await conn.execute("select state, attempts, last_error, run_at - now() from asyncq.jobs")
    found = await cursor.fetchone()
    assert found is not None
    assert found[:3] == ("available", 0, None)
    assert timedelta(minutes=59) < found[3] <= timedelta(hours=1)
    assert deferred.id > 0


async def test_a_cancelled_job_is_kept_with_its_reason_and_does_not_run_again(conn: Connection, work: Work) -> None:
    deferred = await remind.defer(conn, 7)
    await work(orders)
    await work(orders)
    assert await row(conn, deferred.id) == ("cancelled", 1, "user 7 is gone")


async def test_a_cancelled_job_is_no_dead_letter_but_can_be_replayed_by_its_id(conn: Connection, work: Work) -> None:
    deferred = await remind.defer(conn, 7)
    await work(orders)
    assert await orders.discarded(conn) == []
    assert await orders.replay(conn) == []
    assert await orders.replay(conn, [deferred.id]) == [deferred.id]
