"""The cleanup: ended jobs go when their queue's retention is over, in batches, and nothing else goes."""

from datetime import timedelta

import anyio
import psycopg
import pytest
from psycopg import sql

from asyncq.db import jobs
from asyncq.db.connection import Session
from tests.servers import majors
from tests.sql.rows import count, ids, insert, job, running

Connection = psycopg.AsyncConnection

DAY = timedelta(days=1)


def ago(days: float) -> sql.Composed:
    return sql.SQL("now() - make_interval(secs => {})").format(sql.Literal(days * 86_400.0))


async def ended(conn: Connection, days: float, state: str = "discarded", **columns: object) -> int:
    return await insert(conn, **{"state": state, "finished_at": ago(days), **columns})


async def cleanup(session: Session, batch: int = 100, **retention: timedelta) -> int:
    return await jobs.cleanup(session, "asyncq", retention=retention, batch=batch)


async def test_deletes_what_ended_before_the_retention(session: Session, conn: Connection) -> None:
    kept = [await ended(conn, 13.9), await ended(conn, 13.9, "cancelled"), await ended(conn, 0)]
    await ended(conn, 14.1)
    await ended(conn, 14.1, "cancelled")
    assert await cleanup(session, q=14 * DAY) == 2
    assert await ids(conn, "discarded") + await ids(conn, "cancelled") == [kept[0], kept[2], kept[1]]


async def test_each_queue_has_its_own_retention_and_others_are_left(session: Session, conn: Connection) -> None:
    await ended(conn, 2, queue="short")
    kept = [await ended(conn, 2, queue="long"), await ended(conn, 1000, queue="not served")]
    assert await cleanup(session, short=DAY, long=3 * DAY) == 1
    assert await ids(conn, "discarded") == kept


async def test_never_touches_jobs_that_wait_or_run(session: Session, conn: Connection) -> None:
    await insert(conn, run_at=ago(1000), created_at=ago(1000))
    await running(conn, 1, created_at=ago(1000), attempted_at=ago(1000))
    assert await cleanup(session, q=timedelta(0)) == 0
    assert await count(conn) == 2


async def test_a_retention_of_nothing_deletes_at_once(session: Session, conn: Connection) -> None:
    await ended(conn, 0.001)
    assert await cleanup(session, q=timedelta(0)) == 1


async def test_works_in_batches_of_each_queue_the_oldest_first(session: Session, conn: Connection) -> None:
    for queue in ("a", "b"):
        for days in (30, 50, 20, 40):
            await ended(conn, days, queue=queue)
    assert await cleanup(session, 3, a=DAY, b=DAY) == 6
    left = [await job(conn, job_id) for job_id in await ids(conn, "discarded")]
    assert [row and row["queue"] for row in left] == ["a", "b"]
    assert await cleanup(session, 3, a=DAY, b=DAY) == 2
    assert await cleanup(session, 3, a=DAY, b=DAY) == 0


async def test_a_replay_under_way_keeps_its_rows(session: Session, conn: Connection, tx_conn: Connection) -> None:
    replayed, old = await ended(conn, 100), await ended(conn, 100)
    await jobs.replay(tx_conn, "asyncq", queue="q", ids=[replayed])
    with anyio.fail_after(5):
        assert await cleanup(session, q=DAY) == 1
    await tx_conn.commit()
    assert await cleanup(session, q=DAY) == 0
    assert await ids(conn) == [replayed]
    assert await job(conn, old) is None


@majors(12, 18)
@pytest.mark.parametrize("days", [0, 36_500])
async def test_times_that_python_cannot_hold_break_nothing(session: Session, conn: Connection, days: int) -> None:
    old = await insert(conn, state="discarded", finished_at="-infinity", created_at="4713-01-01 00:00:00+00 BC")
    kept = await insert(conn, state="discarded", finished_at="infinity", created_at="infinity")
    assert await cleanup(session, q=timedelta(days=days)) == 1
    assert await job(conn, old) is None
    assert await ids(conn, "discarded") == [kept]
