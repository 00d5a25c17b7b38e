"""Dead letters: listing them, and putting them back within the caller's transaction."""

from datetime import timedelta
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import sql

from asyncq import InvalidArgsError, JobState, Queue
from asyncq.db.connection import Session
from tests.eventually import eventually
from tests.servers import majors
from tests.sql.rows import claim, ids, insert, job, notifications, running, value

Connection = psycopg.AsyncConnection

queue = Queue("q")


async def dead(conn: Connection, **columns: object) -> int:
    given = {"state": "discarded", "finished_at": sql.SQL("now()"), "attempts": 10, "last_error": "ValueError: x"}
    return await insert(conn, **{**given, **columns})


async def test_lists_the_latest_first_up_to_the_limit(conn: Connection) -> None:
    old = await dead(conn, finished_at=sql.SQL("now() - interval '2 days'"))
    new = await dead(conn, finished_at=sql.SQL("now() - interval '1 day'"))
    twins = [await dead(conn, finished_at=sql.SQL("'2024-01-01 00:00+00'")) for _ in range(2)]
    assert [each.id for each in await queue.discarded(conn)] == [new, old, twins[1], twins[0]]
    assert [each.id for each in await queue.discarded(conn, limit=1)] == [new]


async def test_lists_only_discarded_jobs_of_this_queue(conn: Connection) -> None:
    await insert(conn)
    await running(conn, 1)
    await dead(conn, state="cancelled")
    await dead(conn, queue="another")
    assert await queue.discarded(conn) == []


async def test_gives_the_row_as_a_job(conn: Connection) -> None:
    job_id = await dead(
        conn, args='{"a": [1, "ü"]}', priority=-3, max_attempts=10, lease_seconds=2.5,
        attempted_at=sql.SQL("now() - interval '1 hour'"),
    )  # fmt: skip
    row = await job(conn, job_id)
    assert row is not None
    [found] = await queue.discarded(conn)
    assert (found.id, found.queue, found.task, found.priority) == (job_id, "q", "t", -3)
    assert (found.args, found.state, found.attempts, found.max_attempts) == (
        {"a": [1, "ü"]},
        JobState.DISCARDED,
        10,
        10,
    )
    assert (found.lease, found.last_error) == (timedelta(seconds=2.5), "ValueError: x")
    for time in ("run_at", "created_at", "attempted_at", "finished_at"):
        assert getattr(found, time) == row[time]


@majors(12, 18)
async def test_times_that_python_cannot_hold_break_nothing(conn: Connection) -> None:
    for far in ("infinity", "-infinity", "200000-01-01 00:00+00", "4713-01-01 00:00:00+00 BC"):
        await dead(conn, run_at=far, created_at=far, attempted_at=far, finished_at=far)
    found = await queue.discarded(conn)
    assert [each.finished_at.year for each in found if each.finished_at] == [9999, 9999, 1, 1]
    assert len(await queue.replay(conn)) == 4


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres"])
async def test_lists_whatever_the_sessions_date_style(conn: Connection, style: str) -> None:
    await conn.execute(sql.SQL("set datestyle to {}").format(sql.Literal(style)))
    job_id = await dead(conn)
    assert [each.id for each in await queue.discarded(conn)] == [job_id]


@pytest.mark.parametrize("limit", [0, -1, 100_001, True, 1.0, "5", None])
async def test_refuses_a_wrong_limit_before_any_sql(refusing: Connection, limit: Any) -> None:
    with pytest.raises(InvalidArgsError, match="limit"):
        await queue.discarded(refusing, limit=limit)
    assert refusing.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


async def test_replay_puts_all_discarded_jobs_back_with_all_their_attempts(session: Session, conn: Connection) -> None:
    first, second = await dead(conn, run_at=sql.SQL("'2024-01-01 00:00+00'")), await dead(conn)
    await dead(conn, queue="another")
    cancelled = await dead(conn, state="cancelled")
    assert await queue.replay(conn) == [first, second]
    row = await job(conn, first)
    assert row is not None
    assert (row["state"], row["attempts"], row["finished_at"]) == ("available", 0, None)
    assert row["last_error"] == "ValueError: x"
    assert timedelta(0) <= await value(conn, "select now()") - row["run_at"] < timedelta(seconds=30)
    assert await ids(conn, "cancelled") == [cancelled]
    assert await claim(session) == [first, second]


async def test_replay_of_named_jobs_takes_cancelled_ones_too_and_passes_over_the_rest(conn: Connection) -> None:
    discarded, cancelled, not_named = await dead(conn), await dead(conn, state="cancelled"), await dead(conn)
    others = [await dead(conn, queue="another"), await insert(conn), await running(conn, 1)]
    before = [await job(conn, each) for each in (*others, not_named)]
    wanted = [cancelled, *others, discarded, 2**63 - 1, cancelled, discarded]
    assert await queue.replay(conn, wanted) == [discarded, cancelled]
    assert [await job(conn, each) for each in (*others, not_named)] == before
    assert await queue.replay(conn, wanted) == []


async def test_replay_of_no_ids_replays_nothing(conn: Connection) -> None:
    await dead(conn)
    assert await queue.replay(conn, []) == []
    assert len(await ids(conn, "discarded")) == 1


async def test_replay_belongs_to_the_callers_transaction(tx_conn: Connection, conn: Connection) -> None:
    job_id = await dead(conn)
    assert await queue.replay(tx_conn) == [job_id]
    assert await ids(conn, "discarded") == [job_id]
    await tx_conn.rollback()
    assert await ids(conn, "discarded") == [job_id]
    assert await queue.replay(tx_conn) == [job_id]
    await tx_conn.commit()
    assert await ids(conn) == [job_id]


@pytest.mark.parametrize("wrong", ["123", [True], ["1"], [0], [-1], [2**63], [1.0], [None]])
async def test_replay_refuses_what_is_no_id_before_any_sql(refusing: Connection, wrong: Any) -> None:
    with pytest.raises(InvalidArgsError, match="ids"):
        await queue.replay(refusing, wrong)
    assert refusing.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


async def test_replay_wakes_the_queue_once_and_only_if_something_came_back(
    conn: Connection, listening: Connection
) -> None:
    assert await queue.replay(conn) == []
    assert await notifications(listening) == []
    for _ in range(3):
        await dead(conn)
    await queue.replay(conn)
    assert await notifications(listening) == [("asyncq", "q")]


async def test_two_replays_at_once_share_the_jobs(conn: Connection, tx_conn: Connection) -> None:
    wanted = [await dead(conn) for _ in range(5)]
    assert await queue.replay(tx_conn) == wanted
    second: list[list[int]] = []

    async def replay() -> None:
        second.append(await queue.replay(conn))

    async def waits() -> bool:
        return await value(checking, "select count(*) from pg_locks where not granted") > 0

    async with (
        await psycopg.AsyncConnection.connect(conn.info.dsn, password=conn.info.password, autocommit=True) as checking,
        anyio.create_task_group() as group,
    ):
        group.start_soon(replay)
        await eventually(waits, describe="the second replay waits for the first")
        await tx_conn.commit()
    assert second == [[]]
    assert await ids(conn) == wanted
