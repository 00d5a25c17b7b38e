"""Lanes: which there are, what stands first in them, when their next job falls due, and reading on in them."""

import psycopg
import pytest
from psycopg import sql

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.db.instants import LAST, START, Position
from asyncq.worker.lanes import Lanes, Look
from tests.servers import majors
from tests.sql.rows import HOLDER, insert, look, running, value

Connection = psycopg.AsyncConnection


def after(seconds: float) -> sql.Composed:
    return sql.SQL("now() + make_interval(secs => {})").format(sql.Literal(seconds))


async def opened(session: Session, *queues: str, tasks: tuple[str, ...] = ("t",)) -> list[tuple[str, int, int | None]]:
    asked = [jobs.Asked(queue, 0, [], [(32_768, -32_769)]) for queue in queues]
    found = await jobs.claim(session, "asyncq", asked=asked, free=0, tasks=tasks, here=[], worker=HOLDER, token=1)
    return [(queue, priority, first and first.id) for queue, priority, first in found.opened]


async def later(session: Session, *queues: str, tasks: tuple[str, ...] = ("t",)) -> dict[str, float]:
    return (await look(session, dict.fromkeys(queues, 0), tasks=tasks)).later


async def test_all_lanes_are_found_with_their_first_job(session: Session, conn: Connection) -> None:
    low = await insert(conn, priority=-32768, run_at=after(-1))
    second, first = await insert(conn, run_at=after(5)), await insert(conn, run_at=after(-5))
    high = await insert(conn, priority=32767, run_at=after(500))
    other = await insert(conn, queue="other", priority=3)
    await insert(conn, queue="not asked")
    await running(conn, 1, priority=8)
    assert first > second
    assert await opened(session, "q", "other", "empty") == [
        ("q", 32767, high),
        ("q", 0, first),
        ("q", -32768, low),
        ("other", 3, other),
    ]


async def test_a_lane_of_unknown_tasks_has_no_first_job(session: Session, conn: Connection) -> None:
    await insert(conn, priority=2, task="unknown")
    await insert(conn, priority=1, task="unknown", run_at=after(-50))
    known = await insert(conn, priority=1, run_at=after(-5))
    assert await opened(session, "q") == [("q", 2, None), ("q", 1, known)]


async def test_gaps_are_looked_through_without_their_ends(session: Session, conn: Connection) -> None:
    for priority in (10, 9, 8, 5, 4, 0):
        await insert(conn, priority=priority)
    asked = [jobs.Asked("q", 0, [], [(10, 8), (5, 4), (4, -1), (-1, -32_769)])]
    found = await jobs.claim(session, "asyncq", asked=asked, free=0, tasks=["t"], here=[], worker=HOLDER, token=1)
    assert [priority for _, priority, _ in found.opened] == [9, 0]


async def test_reading_on_starts_behind_the_position(session: Session, conn: Connection) -> None:
    first = await insert(conn, run_at=sql.SQL("'2024-01-01 00:00+00'"))
    same_time = await insert(conn, run_at=sql.SQL("'2024-01-01 00:00+00'"))
    third = await insert(conn, run_at=sql.SQL("'2024-01-01 00:00:00.000001+00'"))
    lanes = Lanes()
    found = await look(session, {"q": 1}, lanes=lanes)
    assert found.rows == []
    for expected in (first, same_time, third):
        asked = [lanes.asked("q", 1, Look.ON)]
        found = await jobs.claim(session, "asyncq", asked=asked, free=1, tasks=["t"], here=[], worker=HOLDER, token=9)
        lanes.note(asked, found, 1)
        assert [row.id for row in found.rows] == [expected]
        await conn.execute("update asyncq.jobs set state = 'available', lease_token = null, leased_until = null,"
                           " locked_by = null where id = %s", (expected,))  # fmt: skip
    position = lanes.asked("q", 1, Look.ON).lanes[0][1]
    assert position == Position(found.rows[0].run_at, third)


async def test_says_when_the_next_job_of_each_queue_falls_due(session: Session, conn: Connection) -> None:
    for priority, seconds in ((10, 500), (10, 400), (0, 100), (0, 300), (-10, 200)):
        await insert(conn, queue="a", priority=priority, run_at=after(seconds))
    await insert(conn, queue="b", run_at=after(1000))
    await insert(conn, queue="c", run_at=after(-100))
    await insert(conn, queue="c", run_at=after(100), state="discarded", finished_at=after(-100))
    await insert(conn, queue="not asked", run_at=after(10))
    found = await later(session, "a", "b", "c", "empty")
    assert {queue: pytest.approx(seconds, abs=20) for queue, seconds in found.items()} == {"a": 100, "b": 1000}


@majors(12, 18)
async def test_due_times_that_python_cannot_hold_break_nothing(session: Session, conn: Connection) -> None:
    await insert(conn, run_at="-infinity")
    await insert(conn, run_at="infinity", priority=5)
    await insert(conn, queue="far", run_at="200000-01-01 00:00+00")
    found = await later(session, "q", "far")
    assert set(found) == {"q", "far"}
    assert all(seconds > 10**9 for seconds in found.values())
    await insert(conn, run_at=after(100))
    assert (await later(session, "q"))["q"] == pytest.approx(100, abs=20)


async def test_successes_are_written_along_with_a_claim(
    session: Session, conn: Connection, tx_conn: Connection
) -> None:
    done, held, lost = [await running(conn, 5) for _ in range(3)]
    waiting = await insert(conn)
    await tx_conn.execute("select 1 from asyncq.jobs where id = %s for update", (held,))
    finished = [jobs.Lease(done, 5, 60.0), jobs.Lease(held, 5, 60.0), jobs.Lease(lost, 6, 60.0)]
    lanes = Lanes()
    await look(session, {"q": 1}, lanes=lanes)
    found = await look(session, {"q": 1}, lanes=lanes, finished=finished)
    assert [row.id for row in found.rows] == [waiting]
    assert found.unwritten == {(held, 5): True, (lost, 6): False}
    assert await value(conn, "select array_agg(id order by id) from asyncq.jobs") == [held, lost, waiting]


async def horizon(
    session: Session, approved: int, *lanes: tuple[str, int, Position], awaited: list[str]
) -> jobs.Horizon:
    return await jobs.horizon(session, "asyncq", awaited=awaited, approved=approved, lanes=lanes, tasks=["t"])


@majors(12, 18)
async def test_the_horizon_knows_who_may_still_put_jobs_into_the_past(
    session: Session, conn: Connection, tx_conn: Connection
) -> None:
    before = await horizon(session, START.run_at, awaited=[])
    assert (before.writers, before.over) == ([], True)
    await tx_conn.execute("select count(*) from asyncq.jobs")
    assert (await horizon(session, START.run_at, awaited=[])).writers == []
    await insert(tx_conn)
    during = await horizon(session, START.run_at, awaited=[])
    assert len(during.writers) == 1
    assert not (await horizon(session, START.run_at, awaited=during.writers)).over
    await tx_conn.rollback()
    assert (await horizon(session, START.run_at, awaited=during.writers)).over


@majors(12, 18)
async def test_the_horizon_gives_the_first_job_that_could_run(session: Session, conn: Connection) -> None:
    await insert(conn, task="unknown", run_at=sql.SQL("'2024-01-01 00:00+00'"))
    first = await insert(conn, run_at=sql.SQL("'2024-01-02 00:00+00'"))
    await insert(conn, run_at=sql.SQL("'2024-01-03 00:00+00'"))
    await running(conn, 1, queue="busy")
    now = (await horizon(session, START.run_at, awaited=[])).looked_at
    found = await horizon(session, now, ("q", 0, START), ("busy", 0, START), ("q", 1, START), awaited=[])
    assert [position and position.id for position in found.first] == [first, None, None]
    position = found.first[0]
    assert position is not None
    behind = await horizon(session, position.run_at, ("q", 0, Position(position.run_at, LAST)), awaited=[])
    assert behind.first == [None]
