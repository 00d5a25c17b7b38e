"""The claim: which rows are taken, in which order, by whom, and what it does to them."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import anyio
import psycopg
import pytest
from psycopg import sql

from asyncq.db import jobs
from asyncq.db.connection import Session, address_of
from asyncq.db.instants import readable
from asyncq.db.migrate import migrate
from tests.servers import Postgres, majors
from tests.sql.rows import HOLDER, claim, ids, insert, job, look, rows, value

Connection = psycopg.AsyncConnection

PAST = sql.SQL("now() - interval '1 hour'")
LONG_PAST = sql.SQL("now() - interval '2 hours'")
FUTURE = sql.SQL("now() + interval '1 hour'")


async def test_takes_nothing_from_an_empty_table_and_still_says_when_it_looked(
    session: Session, conn: Connection
) -> None:
    before = await value(conn, "select clock_timestamp()")
    found = await look(session, {"q": 1})
    assert found.rows == []
    assert before <= readable(found.looked_at) <= await value(conn, "select clock_timestamp()")


async def test_takes_by_priority_then_run_at_then_id(session: Session, conn: Connection) -> None:
    last = await insert(conn, priority=-32768, run_at=LONG_PAST)
    third = await insert(conn, run_at=sql.SQL("'2024-01-02 00:00+00'"))
    fourth = await insert(conn, run_at=sql.SQL("'2024-01-02 00:00+00'"))
    second = await insert(conn, run_at=sql.SQL("'2024-01-01 00:00+00'"))
    first = await insert(conn, priority=32767, run_at=PAST)
    assert await claim(session) == [first, second, third, fourth, last]


async def test_takes_one_at_a_time_in_the_same_order(session: Session, conn: Connection) -> None:
    low = await insert(conn, priority=-1, run_at=LONG_PAST)
    middle = [await insert(conn, run_at=LONG_PAST) for _ in range(3)]
    high = await insert(conn, priority=1, run_at=PAST)
    taken = [await claim(session, free=1, token=token) for token in range(1, 6)]
    assert taken == [[high], [middle[0]], [middle[1]], [middle[2]], [low]]


async def test_takes_only_known_tasks_and_looks_past_the_others(session: Session, conn: Connection) -> None:
    for _ in range(20):
        await insert(conn, task="of another release", priority=5)
    known = await insert(conn, task="known")
    alias = await insert(conn, task="earlier name")
    assert await claim(session, free=5, tasks=["known", "earlier name"]) == [known, alias]
    assert await value(conn, "select count(*) from asyncq.jobs where attempts = 0") == 20


async def test_takes_only_from_the_queues_asked(session: Session, conn: Connection) -> None:
    mine = await insert(conn, queue="mine")
    await insert(conn, queue="Mine")
    await insert(conn, queue="theirs")
    assert await claim(session, {"mine": 10}) == [mine]


async def test_takes_nothing_without_tasks_or_queues(session: Session, conn: Connection) -> None:
    await insert(conn)
    assert await claim(session, tasks=[]) == []
    assert await claim(session, {}) == []


async def test_takes_at_most_the_slots_of_each_queue(session: Session, conn: Connection) -> None:
    for queue in ("a", "b", "c"):
        for _ in range(5):
            await insert(conn, queue=queue)
    await claim(session, {"a": 1, "b": 3, "c": 2}, free=100)
    taken = await rows(conn, "select queue, count(*) from asyncq.jobs where state = 'running' group by 1 order by 1")
    assert taken == [("a", 1), ("b", 3), ("c", 2)]


async def test_takes_at_most_the_free_slots_in_all_the_first_queue_first(session: Session, conn: Connection) -> None:
    for queue in ("a", "b"):
        for _ in range(5):
            await insert(conn, queue=queue)
    await claim(session, {"b": 4, "a": 4}, free=5)
    taken = await rows(conn, "select queue, count(*) from asyncq.jobs where state = 'running' group by 1 order by 1")
    assert taken == [("a", 1), ("b", 4)]


async def test_slots_hold_over_all_priorities_of_a_queue(session: Session, conn: Connection) -> None:
    expected = [await insert(conn, priority=priority) for priority in (30, 20, 20, 10)]
    for priority in (10, 0, 0):
        await insert(conn, priority=priority)
    assert await claim(session, {"q": 4}, free=10) == expected


async def test_leaves_the_future_however_high_its_priority(session: Session, conn: Connection) -> None:
    future = [await insert(conn, priority=priority, run_at=FUTURE) for priority in (100, 100, 50, 0, -5)]
    due = [await insert(conn, priority=priority, run_at=PAST) for priority in (70, 0, -10)]
    assert await claim(session) == due
    assert await ids(conn) == future


async def test_leaves_other_states_alone(session: Session, conn: Connection) -> None:
    await insert(conn, state="discarded", finished_at=PAST)
    await insert(conn, state="cancelled", finished_at=PAST)
    await insert(
        conn, state="running", lease_token=9, locked_by="other", leased_until=LONG_PAST, attempted_at=LONG_PAST
    )
    assert await claim(session) == []


async def test_leaves_a_job_whose_earlier_run_is_still_ending_here(session: Session, conn: Connection) -> None:
    ending, next_one = await insert(conn), await insert(conn)
    assert await claim(session, free=1, here=[ending]) == [next_one]
    assert await claim(session, free=1) == [ending]


async def test_counts_the_attempt_and_notes_holder_token_and_lease(session: Session, conn: Connection) -> None:
    job_id = await insert(conn, attempts=2, max_attempts=5, lease_seconds=7.5, run_at=PAST, last_error="earlier")
    before = await job(conn, job_id)
    assert before is not None
    assert await claim(session, token=2**63 - 1) == [job_id]
    row = await job(conn, job_id)
    assert row is not None
    assert (row["state"], row["attempts"], row["lease_token"]) == ("running", 3, 2**63 - 1)
    assert (row["locked_by"], row["last_error"], row["run_at"]) == (HOLDER, "earlier", before["run_at"])
    # Each from the clock: the lease from when the claim began.
    assert row["leased_until"] - row["attempted_at"] == pytest.approx(
        timedelta(seconds=7.5), abs=timedelta(seconds=0.2)
    )
    assert timedelta(0) <= await value(conn, "select now()") - row["attempted_at"] < timedelta(seconds=30)


async def test_gives_the_whole_job(session: Session, conn: Connection) -> None:
    job_id = await insert(
        conn, args='{"a": [1, "ü", null]}', priority=3, max_attempts=7, lease_seconds=0.5, run_at=PAST
    )
    before = await job(conn, job_id)
    assert before is not None
    found = await look(session, {"q": 1})
    assert [row._replace(run_at=0, created_at=0) for row in found.rows] == [
        jobs.ClaimedRow(
            id=job_id,
            queue="q",
            task="t",
            args='{"a": [1, "ü", null]}',
            priority=3,
            attempts=1,
            max_attempts=7,
            lease_seconds=0.5,
            run_at=0,
            created_at=0,
        )
    ]
    assert readable(found.rows[0].run_at) == before["run_at"]
    assert readable(found.rows[0].created_at) == before["created_at"]


async def test_two_claims_at_once_never_take_the_same_row(
    session: Session, other_session: Session, conn: Connection
) -> None:
    await conn.execute("insert into asyncq.jobs (queue, task) select 'q', 't' from generate_series(1, 600)")
    taken: list[int] = []

    async def take(claiming: Session, token: int) -> None:
        while found := await claim(claiming, free=7, token=token):
            taken.extend(found)

    async with anyio.create_task_group() as both:
        both.start_soon(take, session, 1)
        both.start_soon(take, other_session, 2)
    assert len(taken) == len(set(taken)) == 600
    assert await value(conn, "select max(attempts) from asyncq.jobs") == 1


async def test_skips_rows_that_an_open_transaction_holds(
    session: Session, conn: Connection, tx_conn: Connection
) -> None:
    held, free = await insert(conn), await insert(conn)
    await tx_conn.execute("select 1 from asyncq.jobs where id = %s for update", (held,))
    with anyio.fail_after(5):
        assert await claim(session) == [free]
    await tx_conn.rollback()
    assert await claim(session) == [held]


async def test_does_not_see_what_is_not_committed(session: Session, tx_conn: Connection) -> None:
    job_id = await insert(tx_conn)
    assert await claim(session) == []
    await tx_conn.commit()
    assert await claim(session) == [job_id]


async def test_finds_a_job_that_committed_after_one_with_a_higher_id(
    session: Session, conn: Connection, tx_conn: Connection
) -> None:
    late = await insert(tx_conn)
    early = await insert(conn)
    assert late < early
    assert await claim(session) == [early]
    await tx_conn.commit()
    assert await claim(session) == [late]


@majors(12, 18)
async def test_times_that_python_cannot_hold_break_nothing(session: Session, conn: Connection) -> None:
    beginning = await insert(conn, run_at="-infinity", created_at="-infinity")
    before_christ = await insert(conn, run_at="4713-01-01 00:00:00+00 BC", created_at="infinity")
    far_created = await insert(conn, created_at="200000-01-01 00:00+00")
    parked = await insert(conn, run_at="infinity", priority=9)
    far = await insert(conn, run_at="200000-01-01 00:00+00", priority=9)
    found = await look(session, {"q": 10})
    assert [row.id for row in found.rows] == [beginning, before_christ, far_created]
    assert readable(found.rows[0].run_at).year == readable(found.rows[1].run_at).year == 1
    assert {readable(row.created_at).year for row in found.rows} == {1, 9999}
    assert await ids(conn) == [parked, far]


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
async def test_reads_committed_whatever_the_database_defaults_to(
    postgres: Postgres, dsn: str, conn: Connection, level: str
) -> None:
    await conn.execute(
        sql.SQL("alter database {} set default_transaction_isolation = {}").format(
            sql.Identifier(conn.info.dbname), sql.Literal(level)
        )
    )
    first, second = Session(address_of(dsn, "1")), Session(address_of(dsn, "2"))
    assert list(await first.fetch("show transaction_isolation", {})) == [("read committed",)]
    await conn.execute("insert into asyncq.jobs (queue, task) select 'q', 't' from generate_series(1, 200)")
    taken: list[int] = []

    async def take(claiming: Session, token: int) -> None:
        while found := await claim(claiming, free=3, token=token):
            taken.extend(found)

    async with anyio.create_task_group() as both:
        both.start_soon(take, first, 1)
        both.start_soon(take, second, 2)
    assert sorted(taken) == await ids(conn, "running")
    assert len(taken) == 200
    await first.close()
    await second.close()


@pytest.mark.parametrize("durable", [True, False])
async def test_waits_for_the_disk_unless_told_otherwise(dsn: str, conn: Connection, *, durable: bool) -> None:
    usual = await value(conn, "show synchronous_commit")
    session = Session(address_of(dsn, "1", durable=durable))
    assert list(await session.fetch("show synchronous_commit", {})) == [(usual if durable else "off",)]
    await insert(conn)
    assert len(await claim(session)) == 1
    await session.close()


async def test_does_not_write_where_the_database_defaults_to_read_only(dsn: str, conn: Connection) -> None:
    """Whoever made it so means the workers too; they wait until it is over."""
    job_id = await insert(conn)
    database = sql.Identifier(conn.info.dbname)
    await conn.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(database))
    session = Session(address_of(dsn, "1"))
    with pytest.raises(psycopg.OperationalError, match="read-only"):
        await claim(session)
    assert await ids(conn, "available") == [job_id]
    await conn.execute(sql.SQL("alter database {} reset default_transaction_read_only").format(database))
    assert await claim(session) == [job_id]
    await session.close()


@pytest.fixture
async def shadowed(conn: Connection, dsn: str) -> AsyncGenerator[Session]:
    """A session whose database puts a schema with look-alikes before everything, pg_catalog included."""
    await conn.execute("""
        create schema shadow;
        create table shadow.jobs (like asyncq.jobs);
        create function shadow.now() returns timestamptz language sql as $$ select '1999-01-01'::timestamptz $$;
        create function shadow.make_interval(secs double precision) returns interval
            language sql as $$ select interval '0' $$;
        create function shadow.pg_notify(text, text) returns void language sql as $$ select $$;
    """)
    await conn.execute(
        sql.SQL("alter database {} set search_path = shadow, pg_catalog").format(sql.Identifier(conn.info.dbname))
    )
    session = Session(address_of(dsn, "1"))
    yield session
    await session.close()


async def test_look_alikes_in_the_search_path_are_not_used(shadowed: Session, conn: Connection) -> None:
    job_id = await insert(conn, lease_seconds=30)
    found = await look(shadowed, {"q": 1})
    assert [row.id for row in found.rows] == [job_id]
    assert readable(found.looked_at) > datetime(2024, 1, 1, tzinfo=UTC)
    lease = await value(conn, "select leased_until - attempted_at from asyncq.jobs")
    assert lease == pytest.approx(timedelta(seconds=30), abs=timedelta(seconds=0.2))


async def test_a_second_schema_is_another_world(conn: Connection, dsn: str, session: Session) -> None:
    await migrate(dsn, schema="second")
    mine = await insert(conn)
    theirs = await value(conn, "insert into second.jobs (queue, task) values ('q', 't') returning id + 1000")
    assert await claim(session) == [mine]
    assert await claim(session) == []
    assert [each + 1000 for each in await claim(session, schema="second")] == [theirs]
