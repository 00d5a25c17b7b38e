"""The rescue: it takes back what ran out, by what the row alone says, and nothing else."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import anyio
import psycopg
import pytest
from psycopg import sql

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.db.instants import START, readable
from asyncq.db.migrate import migrate
from asyncq.db.statements import load
from asyncq.job import JobState, Lease
from asyncq.outcome import Completed, Released
from tests.eventually import eventually
from tests.servers import majors
from tests.sql.rows import HOLDER, claim, finish, ids, insert, job, running, value

Connection = psycopg.AsyncConnection

TOKEN = 77
EXPIRED = sql.SQL("now() - interval '1 second'")


PARAMS = {"batch": 10, "since": "-infinity", "awaited": "{}", "not_after": "infinity"}


async def rescue(
    session: Session, batch: int = 100, since: int = START.run_at, awaited: Sequence[str] = ()
) -> jobs.Rescue:
    return await jobs.rescue(session, "asyncq", batch=batch, since=since, awaited=awaited)


async def test_looks_only_at_what_was_claimed_since_and_says_what_is_the_first(
    session: Session, conn: Connection, tx_conn: Connection
) -> None:
    early = await running(conn, TOKEN, leased_until=EXPIRED, attempted_at=sql.SQL("'2024-01-01 00:00+00'"))
    late = await running(conn, TOKEN, leased_until=EXPIRED, attempted_at=sql.SQL("'2024-01-02 00:00+00'"))
    await running(conn, TOKEN, attempted_at=sql.SQL("'2024-01-03 00:00+00'"))
    open_one = await insert(tx_conn)
    whole = await rescue(session, batch=0)
    assert whole.first is not None
    assert (readable(whole.first), len(whole.writers), whole.over) == (datetime(2024, 1, 1, tzinfo=UTC), 1, True)
    found = await rescue(session, since=whole.first + 1, awaited=whole.writers)
    assert [row[0] for row in found.rescued] == [late]
    assert not found.over
    await tx_conn.commit()
    found = await rescue(session, since=found.first or 0, awaited=whole.writers)
    assert (list(found.rescued), found.over) == ([], True)
    assert await ids(conn, "available") == [late, open_one]
    assert [row[0] for row in (await rescue(session)).rescued] == [early]


async def test_puts_an_expired_job_back_in_its_place_with_its_attempts(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN, leased_until=EXPIRED, attempts=2, run_at=sql.SQL("'2024-01-01 00:00+00'"))
    before = await job(conn, job_id)
    assert before is not None
    found = await rescue(session)
    assert found.mine is True
    assert list(found.rescued) == [(job_id, "q", "t", JobState.AVAILABLE, 2, HOLDER)]
    row = await job(conn, job_id)
    assert row is not None
    assert (row["state"], row["attempts"], row["run_at"]) == ("available", 2, before["run_at"])
    assert (row["locked_by"], row["lease_token"], row["leased_until"]) == (None, None, None)
    assert row["finished_at"] is None
    assert HOLDER in row["last_error"]
    assert "attempt 2" in row["last_error"]
    assert await claim(session) == [job_id]


@pytest.mark.parametrize("attempts", [1, 3])
async def test_discards_a_job_whose_attempts_are_used_up_and_says_why(
    session: Session, conn: Connection, attempts: int
) -> None:
    job_id = await running(conn, TOKEN, leased_until=EXPIRED, attempts=attempts, max_attempts=1)
    found = await rescue(session)
    assert list(found.rescued) == [(job_id, "q", "t", JobState.DISCARDED, attempts, HOLDER)]
    row = await job(conn, job_id)
    assert row is not None
    assert (row["state"], row["attempts"]) == ("discarded", attempts)
    assert "died" in row["last_error"]
    assert timedelta(0) <= await value(conn, "select now()") - row["finished_at"] < timedelta(seconds=30)
    assert [dead.id for dead in await jobs.discarded(conn, "asyncq", queue="q", limit=10)] == [job_id]


async def test_does_not_ask_who_serves_the_queue_or_knows_the_task(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN, leased_until=EXPIRED, queue="served elsewhere", task="known elsewhere")
    await rescue(session)
    assert await claim(session, {"served elsewhere": 1}, tasks=["known elsewhere"]) == [job_id]


async def test_leaves_what_is_held_and_says_when_the_next_lease_ends(session: Session, conn: Connection) -> None:
    soon = await running(conn, TOKEN, leased_until=sql.SQL("now() + interval '20 seconds'"))
    later = await running(conn, TOKEN, leased_until=sql.SQL("now() + interval '1 hour'"))
    found = await rescue(session)
    assert found.mine is True
    assert list(found.rescued) == []
    assert found.next_seconds is not None
    assert 5 < found.next_seconds <= 20
    assert await ids(conn, "running") == [soon, later]


async def test_leaves_other_states_alone_and_has_no_next_time_when_nothing_runs(
    session: Session, conn: Connection
) -> None:
    await insert(conn)
    await insert(conn, state="discarded", finished_at=EXPIRED)
    found = await rescue(session)
    assert (found.mine, list(found.rescued), found.next_seconds) == (True, [], None)


async def test_takes_a_batch_at_a_time(session: Session, conn: Connection) -> None:
    for _ in range(5):
        await running(conn, TOKEN, leased_until=EXPIRED)
    assert [len((await rescue(session, batch=2)).rescued) for _ in range(4)] == [2, 2, 1, 0]


async def test_one_rescues_at_a_time(session: Session, other_session: Session, conn: Connection, dsn: str) -> None:
    job_id = await running(conn, TOKEN, leased_until=EXPIRED)
    async with await psycopg.AsyncConnection.connect(dsn) as first:
        cursor = await first.execute(load("jobs/rescue", "asyncq"), PARAMS)
        assert len(await cursor.fetchall()) == 1
        found = await rescue(other_session)
        assert (found.mine, list(found.rescued)) == (False, [])
        await first.rollback()
    assert [row[0] for row in (await rescue(other_session)).rescued] == [job_id]


async def test_another_schema_of_the_same_database_is_no_rival(
    session: Session, other_session: Session, conn: Connection, dsn: str
) -> None:
    await migrate(dsn, schema="second")
    job_id = await running(conn, TOKEN, leased_until=EXPIRED)
    async with await psycopg.AsyncConnection.connect(dsn) as first:
        await first.execute(load("jobs/rescue", "second"), PARAMS)
        assert [row[0] for row in (await rescue(other_session)).rescued] == [job_id]
        await first.rollback()


CHANGES = {
    "finished": "delete from asyncq.jobs where id = %s",
    "extended": "update asyncq.jobs set leased_until = now() + interval '1 minute' where id = %s",
    "claimed again": """
        update asyncq.jobs
        set lease_token = 99, locked_by = 'other', attempts = attempts + 1, leased_until = now() + interval '1 minute'
        where id = %s
    """,
    "released": """
        update asyncq.jobs set state = 'available', lease_token = null, locked_by = null, leased_until = null
        where id = %s
    """,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_changes_in_the_meantime_stays_as_it_is(
    session: Session, conn: Connection, tx_conn: Connection, change: str
) -> None:
    changing = await running(conn, TOKEN, leased_until=EXPIRED)
    dead = await running(conn, TOKEN, leased_until=EXPIRED)
    await tx_conn.execute(change.encode(), (changing,))
    expected = await tx_conn.execute("select * from asyncq.jobs where id = %s", (changing,))
    wanted = await expected.fetchone()
    with anyio.fail_after(5):
        found = await rescue(session)
    assert [row[0] for row in found.rescued] == [dead]
    await tx_conn.commit()
    assert list((await rescue(session)).rescued) == []
    after = await conn.execute("select * from asyncq.jobs where id = %s", (changing,))
    assert await after.fetchone() == wanted


async def test_a_row_that_changes_between_the_look_and_the_lock_stays_as_it_is(
    session: Session, conn: Connection, tx_conn: Connection
) -> None:
    """The rescue's snapshot is taken, then the row is finished, and only then does the rescue come to it."""
    extended = await running(conn, TOKEN, leased_until=EXPIRED)
    dead = await running(conn, TOKEN, leased_until=EXPIRED)
    # A lock on the table stops the rescue after it has taken its snapshot: it waits before it reads.
    await tx_conn.execute("lock table asyncq.jobs in access exclusive mode")
    rescued: list[jobs.Rescue] = []

    async def rescuing() -> None:
        rescued.append(await rescue(session))

    async def waits() -> bool:
        return await value(conn, "select count(*) from pg_locks where not granted") > 0

    async with anyio.create_task_group() as group:
        group.start_soon(rescuing)
        await eventually(waits, describe="the rescue waits for the table")
        await tx_conn.execute(
            "update asyncq.jobs set leased_until = now() + interval '1 minute' where id = %s", (extended,)
        )
        await tx_conn.commit()
    assert [row[0] for row in rescued[0].rescued] == [dead]
    assert await ids(conn, "running") == [extended]


async def test_what_comes_too_late_rescues_nothing_and_says_what_there_is(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN, leased_until=EXPIRED)
    early = await rescue(session, batch=0)
    found = await jobs.rescue(session, "asyncq", batch=10, not_after=lambda: early.answered_at)
    assert (found.late, found.mine, list(found.rescued)) == (True, False, [])
    assert found.next_seconds is not None
    assert found.next_seconds < 0
    later = found.answered_at + 60_000_000
    found = await jobs.rescue(session, "asyncq", batch=10, not_after=lambda: later)
    assert (found.late, [row[0] for row in found.rescued]) == (False, [job_id])


async def test_whoever_was_rescued_can_neither_beat_nor_finish(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN, leased_until=EXPIRED)
    await rescue(session)
    assert await claim(session, token=TOKEN + 1) == [job_id]
    before = await job(conn, job_id)
    lease = Lease(job_id, TOKEN, 60)
    assert await jobs.heartbeat(session, "asyncq", [lease]) == {(job_id, TOKEN): False}
    assert await finish(session, (job_id, TOKEN, Completed())) == {(job_id, TOKEN): False}
    assert await finish(session, (job_id, TOKEN, Released())) == {(job_id, TOKEN): False}
    assert await job(conn, job_id) == before


@majors(12, 18)
async def test_times_that_python_cannot_hold_break_nothing(session: Session, conn: Connection) -> None:
    dead = [
        await running(conn, TOKEN, leased_until="-infinity"),
        await running(conn, TOKEN, leased_until="4713-01-01 00:00:00+00 BC", attempted_at="-infinity"),
    ]
    for far in ("infinity", "200000-01-01 00:00+00"):
        await running(conn, TOKEN, leased_until=far, attempted_at=far, created_at=far, run_at=far)
    found = await rescue(session)
    assert sorted(row[0] for row in found.rescued) == dead
    assert len(await ids(conn, "running")) == 2
    await conn.execute("delete from asyncq.jobs where leased_until < 'infinity'")
    assert list((await rescue(session)).rescued) == []


async def test_odd_names_are_told_as_they_are(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN, leased_until=EXPIRED, locked_by="%s $1 'x' ü")
    [row] = (await rescue(session)).rescued
    assert (row[0], row[5]) == (job_id, "%s $1 'x' ü")
    assert "%s $1 'x' ü" in await value(conn, "select last_error from asyncq.jobs")


async def test_a_rescue_that_was_held_up_itself_takes_nothing(session: Session, conn: Connection, dsn: str) -> None:
    """Whoever holds the table holds up heartbeats too: workers that live go first."""
    job_id = await running(conn, TOKEN, leased_until=sql.SQL("now() - interval '1 second'"))
    found: list[jobs.Rescue] = []
    # Prepared by a first call: later ones wait for the table after their transaction has begun.
    await conn.execute("update asyncq.jobs set leased_until = now() + interval '1 minute'")
    await jobs.rescue(session, "asyncq", batch=10)
    await conn.execute("update asyncq.jobs set leased_until = now() - interval '1 second'")

    async def rescue() -> None:
        found.append(await jobs.rescue(session, "asyncq", batch=10))

    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("lock table asyncq.jobs in access exclusive mode")
        async with anyio.create_task_group() as group:
            group.start_soon(rescue)
            await anyio.sleep(1.3)
            await holder.rollback()
    assert (found[0].mine, list(found[0].rescued)) == (False, [])
    again = await jobs.rescue(session, "asyncq", batch=10)
    assert [row[0] for row in again.rescued] == [job_id]
