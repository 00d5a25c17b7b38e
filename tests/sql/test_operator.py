"""What an operator sees and does: counts, pages of jobs, and jobs that are run now, cancelled or deleted."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import sql

from asyncq import ConfigurationError, InvalidArgsError, Job, JobState, Queue, QueueStats
from asyncq.db import inspect
from asyncq.db.connection import Session
from asyncq.db.migrate import migrate
from tests.eventually import eventually
from tests.servers import majors
from tests.sql.rows import claim, count, ids, insert, job, notifications, rows, running, value

Connection = psycopg.AsyncConnection

queue = Queue("q")

LATER = sql.SQL("clock_timestamp() + interval '1 hour'")


async def ended(conn: Connection, **columns: object) -> int:
    return await insert(conn, **{"state": "discarded", "finished_at": sql.SQL("now()"), "last_error": "x", **columns})


@pytest.fixture
async def other(dsn: str) -> AsyncGenerator[Connection]:
    """One more connection, in autocommit."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        yield conn


# --- Counts -----------------------------------------------------------------------------------------------------------


@majors(12, 18)
async def test_counts_jobs_by_where_they_stand(conn: Connection) -> None:
    await insert(conn, run_at=sql.SQL("now() - interval '1 minute'"), priority=-5)
    await insert(conn, run_at=sql.SQL("now() - interval '1 hour'"))
    for priority in (7, 0, 0):
        await insert(conn, run_at=LATER, priority=priority)
    for token in range(4):
        await running(conn, token)
    for _ in range(5):
        await ended(conn)
    for _ in range(6):
        await ended(conn, state="cancelled")
    await ended(conn, queue="a")
    await running(conn, 9, queue="z")
    await insert(conn, queue="m")
    q = await queue.stats(conn)
    assert q.oldest_due_seconds is not None
    assert 3600 <= q.oldest_due_seconds < 3660
    assert q == QueueStats("q", 2, q.oldest_due_seconds, 3, 4, 5, 6)
    a, m, same, z = await Queue.stats_of_all(conn)
    assert a == QueueStats("a", 0, None, 0, 0, 1, 0)
    assert (m.queue, m.due, m.scheduled) == ("m", 1, 0)
    assert (same.queue, same.due, same.scheduled, same.running) == ("q", 2, 3, 4)
    assert z == QueueStats("z", 0, None, 0, 1, 0, 0)


async def test_counts_of_an_empty_queue_and_of_no_queue(conn: Connection) -> None:
    assert await queue.stats(conn) == QueueStats("q", 0, None, 0, 0, 0, 0)
    assert await Queue.stats_of_all(conn) == []
    with pytest.raises(ConfigurationError, match="schema"):
        await Queue.stats_of_all(conn, schema="no such")


async def test_counting_stops_at_the_limit(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueStats, "LIMIT", 5)
    for priority in (0, 1):
        for _ in range(4):
            await insert(conn, priority=priority)
            await insert(conn, priority=priority, run_at=LATER)
            await running(conn, 1)
            await ended(conn, finished_at=sql.SQL("now() - interval '1 day'"))
    await ended(conn, state="cancelled")
    found = await queue.stats(conn)
    assert (found.due, found.scheduled, found.running, found.discarded, found.cancelled) == (5, 5, 5, 4, 1)


async def test_times_that_python_cannot_hold_are_counted(conn: Connection) -> None:
    for far in ("infinity", "-infinity", "200000-01-01 00:00+00", "4713-01-01 00:00:00+00 BC"):
        await insert(conn, run_at=far)
        await ended(conn, finished_at=far, created_at=far)
    found = await queue.stats(conn)
    assert (found.due, found.scheduled, found.discarded) == (2, 2, 4)
    assert (found.oldest_due_seconds or 0) > 60e9
    assert len((await queue.jobs(conn)).jobs) == 8


async def test_another_schema_is_counted_and_listed_by_itself(dsn: str, conn: Connection) -> None:
    await migrate(dsn, schema="others")
    theirs = Queue("q", schema="others")
    await insert(conn)
    assert (await theirs.stats(conn)).due == 0
    assert await Queue.stats_of_all(conn, schema="others") == []
    assert (await theirs.jobs(conn)).jobs == []


# --- Pages ------------------------------------------------------------------------------------------------------------


async def listed(conn: Connection, **filters: Any) -> list[int]:
    return [each.id for each in (await queue.jobs(conn, **filters)).jobs]


@majors(12, 18)
async def test_lists_the_newest_first_page_by_page(conn: Connection) -> None:
    wanted = [await insert(conn) for _ in range(5)][::-1]
    await insert(conn, queue="another")
    assert await listed(conn) == wanted
    first = await queue.jobs(conn, limit=2)
    assert ([each.id for each in first.jobs], first.before) == (wanted[:2], wanted[1])
    second = await queue.jobs(conn, limit=2, before=first.before)
    assert [each.id for each in second.jobs] == wanted[2:4]
    last = await queue.jobs(conn, limit=2, before=second.before)
    assert ([each.id for each in last.jobs], last.before) == (wanted[4:], None)


@majors(12, 18)
async def test_each_filter_lets_through_what_it_says(conn: Connection) -> None:
    named = await insert(conn, task="app.send", args='{"user_id": 17, "tags": ["a", "b"]}')
    old = await insert(conn, created_at=sql.SQL("now() - interval '2 hours'"), args='{"user_id": 1}')
    held = await running(conn, 1)
    discarded, cancelled = await ended(conn), await ended(conn, state="cancelled")
    await running(conn, 2, queue="another")
    assert await listed(conn, state="available") == [old, named]
    assert await listed(conn, state=JobState.RUNNING) == [held]
    assert await listed(conn, state="running", before=held) == []
    assert await listed(conn, state="discarded") == [discarded]
    assert await listed(conn, state=JobState.CANCELLED) == [cancelled]
    assert await listed(conn, task="app.send") == [named]
    assert await listed(conn, older_than=timedelta(hours=1)) == [old]
    assert await listed(conn, args={"user_id": 17}) == [named]
    assert await listed(conn, args={"tags": ["b"]}) == [named]
    assert await listed(conn, args={"user_id": "17"}) == []
    assert await listed(conn, state="available", task="t", args={"user_id": 1}, older_than=timedelta(0)) == [old]


async def test_gives_the_rows_as_jobs(conn: Connection) -> None:
    job_id = await ended(conn, args='{"a": [1, "ü"]}', attempts=3, priority=2, attempted_at=sql.SQL("now()"))
    [found] = (await queue.jobs(conn)).jobs
    assert [found] == await queue.discarded(conn)
    await conn.execute("update asyncq.jobs set attempted_at = null")
    [found] = (await queue.jobs(conn)).jobs
    assert (found.attempted_at, [found]) == (None, await queue.discarded(conn))
    waits = await insert(conn)
    assert (await queue.jobs(conn, limit=1)).jobs[0].finished_at is None
    await conn.execute("delete from asyncq.jobs where id = %s", (waits,))
    assert found.id == job_id
    assert [found] == await inspect.show(conn, "asyncq", ids=[job_id, 10**9, job_id])
    unseen: dict[str, Any] = {"args_json": "{}", "last_error": None}
    outline = Job(**{name: unseen.get(name, getattr(found, name)) for name in Job.__dataclass_fields__})
    assert await inspect.outline(conn, "asyncq", ids=[job_id]) == [outline]
    assert await inspect.outlines(conn, "asyncq", queue="q", limit=1) == ([outline], job_id)


async def test_a_page_reads_a_hundred_thousand_jobs_and_says_where_to_go_on(conn: Connection) -> None:
    wanted = await insert(conn, task="rare")
    await conn.execute("insert into asyncq.jobs (queue, task) select 'q', 't' from generate_series(1, 100000)")
    newest = await value(conn, "select max(id) from asyncq.jobs")
    [(reached,)] = await rows(conn, "select id from asyncq.jobs order by id limit 1 offset 1")
    page = await queue.jobs(conn, task="rare")
    assert page == ([], reached)
    page = await queue.jobs(conn, task="rare", before=page.before)
    assert ([each.id for each in page.jobs], page.before) == ([wanted], None)
    # One that is full has not read so far.
    assert (await queue.jobs(conn, limit=1)).before == newest
    held = await running(conn, 1, attempted_at=sql.SQL("now() - interval '1 day'"))
    await conn.execute("insert into asyncq.jobs (queue, task) select 'q', 't' from generate_series(1, 10)")
    page = await queue.jobs(conn, state="running", limit=2)
    assert ([each.id for each in page.jobs], page.before) == ([held], None)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("limit", 0),
        ("limit", 100_001),
        ("limit", True),
        ("before", 0),
        ("before", 2**63),
        ("before", "5"),
        ("state", "done"),
        ("state", 5),
        ("task", ""),
        ("task", 5),
        ("older_than", 5),
        ("older_than", timedelta(seconds=-1)),
        ("args", [1]),
        ("args", "x"),
        ("args", {"a": float("nan")}),
        ("args", {"a": "\0"}),
        ("args", {"a": "\ud800"}),
        ("args", {"a": object()}),
    ],
)
async def test_refuses_a_wrong_filter_before_any_sql(refusing: Connection, name: str, wrong: Any) -> None:
    with pytest.raises(InvalidArgsError, match=name):
        await queue.jobs(refusing, **{name: wrong})
    assert refusing.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


# --- Run now, cancel --------------------------------------------------------------------------------------------------

Act = Callable[[Connection, list[int]], Awaitable[list[int]]]

both = pytest.mark.parametrize("act", [queue.run_now, queue.cancel], ids=["run_now", "cancel"])


@majors(12, 18)
async def test_run_now_makes_due_what_waits_for_a_later_time_and_passes_over_the_rest(
    conn: Connection, session: Session, listening: Connection
) -> None:
    first, second = await insert(conn, run_at=LATER), await insert(conn, run_at="infinity")
    others = [
        await insert(conn, run_at=sql.SQL("now() - interval '1 minute'")),
        await insert(conn, run_at=LATER, queue="another"),
        await running(conn, 1),
        await ended(conn),
        await insert(conn, run_at=LATER),
    ]
    before = [await job(conn, each) for each in others]
    wanted = [second, *others[:4], 2**63 - 1, first, second]
    assert await queue.run_now(conn, wanted) == [first, second]
    assert [await job(conn, each) for each in others] == before
    assert await notifications(listening) == [("asyncq", "q")]
    assert await queue.run_now(conn, wanted) == []
    assert await queue.run_now(conn, []) == []
    assert await notifications(listening) == []
    assert await claim(session) == [others[0], first, second]


@majors(12, 18)
async def test_cancel_keeps_what_waits_from_running_and_passes_over_the_rest(
    conn: Connection, session: Session, listening: Connection
) -> None:
    due, later = await insert(conn, last_error="ValueError: x", attempts=2), await insert(conn, run_at=LATER)
    others = [await insert(conn, queue="another"), await running(conn, 1), await ended(conn)]
    before = [await job(conn, each) for each in others]
    wanted = [later, *others, due, due]
    assert await queue.cancel(conn, wanted) == [due, later]
    assert await queue.cancel(conn, wanted) == []
    assert await queue.cancel(conn, []) == []
    assert [await job(conn, each) for each in others] == before
    row = await job(conn, due)
    assert row is not None
    assert (row["state"], row["last_error"], row["attempts"]) == ("cancelled", "cancelled by an operator", 2)
    assert row["finished_at"] is not None
    assert await claim(session) == []
    assert await notifications(listening) == []
    assert await queue.replay(conn, [due]) == [due]
    assert await claim(session) == [due]


@both
async def test_both_belong_to_the_callers_transaction(conn: Connection, tx_conn: Connection, act: Act) -> None:
    job_id = await insert(conn, run_at=LATER)
    row = await job(conn, job_id)
    assert await act(tx_conn, [job_id]) == [job_id]
    await tx_conn.rollback()
    assert await job(conn, job_id) == row
    assert await act(tx_conn, [job_id]) == [job_id]
    await tx_conn.commit()
    assert await job(conn, job_id) != row


@both
@pytest.mark.parametrize("wrong", ["123", 5, [True], ["1"], [0], [-1], [2**63], [1.0], [None]])
async def test_both_refuse_what_is_no_id_before_any_sql(refusing: Connection, act: Act, wrong: Any) -> None:
    with pytest.raises(InvalidArgsError, match="ids"):
        await act(refusing, wrong)
    assert refusing.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


async def while_waiting(
    checking: Connection, acting: Callable[[], Awaitable[list[int]]], then: Callable[[], Awaitable[object]]
) -> list[int]:
    """Start something that has to wait for a lock, do something else once it waits, and give what it gave."""
    gave: list[list[int]] = []

    async def act() -> None:
        gave.append(await acting())

    async def waits() -> bool:
        here = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        return await value(checking, here) > 0

    async with anyio.create_task_group() as group:
        group.start_soon(act)
        await eventually(waits, describe="it waits for a lock")
        await then()
    return gave[0]


@both
async def test_a_job_that_a_worker_is_just_claiming_is_passed_over(
    conn: Connection, tx_conn: Connection, other: Connection, act: Act
) -> None:
    waits, taken = await insert(conn, run_at=LATER), await insert(conn, run_at=LATER)
    await tx_conn.execute(
        "update asyncq.jobs set state = 'running', attempts = 1, lease_token = 5, locked_by = 'w',"
        " attempted_at = now(), leased_until = now() + interval '1 minute' where id = %s",
        (taken,),
    )
    assert await while_waiting(other, lambda: act(conn, [taken, waits]), tx_conn.commit) == [waits]
    row = await job(conn, taken)
    assert row is not None
    assert (row["state"], row["lease_token"], row["attempts"]) == ("running", 5, 1)


@both
async def test_a_claim_passes_over_a_job_that_an_operator_is_at(
    conn: Connection, tx_conn: Connection, session: Session, act: Act
) -> None:
    job_id, free = await insert(conn, run_at=LATER), await insert(conn)
    due = await insert(conn) if act == queue.cancel else job_id
    assert await act(tx_conn, [job_id, due]) == sorted({job_id, due})
    assert await claim(session) == [free]
    await tx_conn.commit()
    assert await claim(session, token=2) == ([] if act == queue.cancel else [job_id])


@both
@majors(12, 18)
async def test_rows_are_locked_in_the_order_of_their_ids(
    conn: Connection, tx_conn: Connection, other: Connection, act: Act
) -> None:
    low, held, high = [await insert(conn, run_at=LATER) for _ in range(3)]
    await tx_conn.execute("select from asyncq.jobs where id = %s for update", (held,))

    async def look() -> None:
        unlocked = await rows(other, "select id from asyncq.jobs order by id for update skip locked")
        assert unlocked == [(high,)]
        await tx_conn.commit()

    assert await while_waiting(other, lambda: act(conn, [high, held, low]), look) == [low, held, high]


# --- Purge ------------------------------------------------------------------------------------------------------------


@majors(12, 18)
async def test_purge_deletes_what_ended_and_nothing_else(conn: Connection) -> None:
    kept = [await insert(conn), await running(conn, 1), await ended(conn, queue="another")]
    old = {"finished_at": sql.SQL("now() - interval '2 days'")}
    for columns in ({}, old):
        for state in ("discarded", "cancelled"):
            await ended(conn, state=state, **columns)
    day = timedelta(days=1)
    for found in (1, 0):
        assert await inspect.ended(conn, "asyncq", queue="q", state=JobState.CANCELLED, older_than=day) == found
        assert await queue.purge(conn, state="cancelled", older_than=day) == found
    assert await queue.purge(conn, older_than=day) == 1
    assert await queue.purge(conn, state=JobState.DISCARDED) == 1
    assert await ids(conn, "cancelled") != []
    assert await inspect.ended(conn, "asyncq", queue="q", state=None, older_than=timedelta(0)) == 1
    assert await queue.purge(conn) == 1
    assert [row[0] for row in await rows(conn, "select id from asyncq.jobs order by id")] == kept


async def test_purge_goes_on_batch_by_batch_and_belongs_to_the_callers_transaction(
    conn: Connection, tx_conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "PURGED_AT_ONCE", 3)
    for _ in range(7):
        await ended(conn)
    assert await queue.purge(tx_conn) == 7
    await tx_conn.rollback()
    assert await count(conn) == 7
    assert await queue.purge(conn) == 7
    assert await count(conn) == 0


async def test_purge_passes_over_what_is_just_being_replayed(conn: Connection, tx_conn: Connection) -> None:
    replayed, _ = await ended(conn), await ended(conn)
    await queue.replay(tx_conn, [replayed])
    assert await queue.purge(conn) == 1
    await tx_conn.commit()
    assert await ids(conn) == [replayed]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("state", "available"),
        ("state", JobState.RUNNING),
        ("state", 1),
        ("older_than", 5),
        ("older_than", None),
        ("older_than", timedelta(days=-1)),
        ("older_than", timedelta.max),
    ],
)
async def test_purge_refuses_what_it_cannot_delete_before_any_sql(refusing: Connection, name: str, wrong: Any) -> None:
    with pytest.raises(InvalidArgsError, match=name):
        await queue.purge(refusing, **{name: wrong})
    assert refusing.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
