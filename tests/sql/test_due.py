"""When the next job of each queue falls due, for a worker that found nothing more to do."""

from datetime import datetime

import psycopg
import pytest
from psycopg import sql

from asyncq.db import jobs
from asyncq.db.connection import Session
from tests.servers import majors
from tests.sql.rows import insert, value

Connection = psycopg.AsyncConnection


def after(seconds: int) -> sql.Composed:
    return sql.SQL("now() + make_interval(secs => {})").format(sql.Literal(seconds))


async def due(session: Session, conn: Connection, *queues: str, looked_at: datetime | None = None) -> dict[str, float]:
    since: datetime = looked_at or await value(conn, "select now()")
    return await jobs.due(session, "asyncq", queues=queues, looked_at=since)


async def test_gives_the_earliest_of_each_queue_over_all_priorities(session: Session, conn: Connection) -> None:
    for priority, seconds in ((10, 500), (10, 400), (0, 100), (0, 300), (-10, 200)):
        await insert(conn, queue="a", priority=priority, run_at=after(seconds))
    await insert(conn, queue="b", run_at=after(1000))
    await insert(conn, queue="not asked", run_at=after(10))
    found = await due(session, conn, "a", "b", "empty")
    assert {queue: pytest.approx(seconds, abs=20) for queue, seconds in found.items()} == {"a": 100, "b": 1000}


async def test_passes_over_what_was_due_already_and_what_does_not_wait(session: Session, conn: Connection) -> None:
    await insert(conn, run_at=after(-100))
    await insert(conn, run_at=after(100), state="discarded", finished_at=after(-100))
    assert await due(session, conn, "q") == {}
    await insert(conn, run_at=after(200), priority=-5)
    assert await due(session, conn, "q") == {"q": pytest.approx(200, abs=20)}


async def test_nothing_falls_between_the_claim_and_this_question(session: Session, conn: Connection) -> None:
    looked_at = await value(conn, "select now() - interval '10 seconds'")
    await insert(conn, run_at=after(-5), priority=3)
    await insert(conn, run_at=after(50))
    assert await due(session, conn, "q", looked_at=looked_at) == {"q": pytest.approx(-5, abs=4.9)}


async def test_no_queue_is_no_answer(session: Session, conn: Connection) -> None:
    await insert(conn, run_at=after(100))
    assert await due(session, conn) == {}


@majors(12, 18)
async def test_times_that_python_cannot_hold_break_nothing(session: Session, conn: Connection) -> None:
    await insert(conn, run_at="-infinity")
    await insert(conn, run_at="infinity", priority=5)
    await insert(conn, queue="far", run_at="200000-01-01 00:00+00")
    found = await due(session, conn, "q", "far")
    assert set(found) == {"q", "far"}
    assert all(seconds > 10**9 for seconds in found.values())
    await insert(conn, run_at=after(100))
    assert (await due(session, conn, "q"))["q"] == pytest.approx(100, abs=20)
