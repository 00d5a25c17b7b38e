"""The finish: what each outcome does to the row, and that only the present holder's outcome counts."""

from datetime import timedelta

import anyio
import psycopg
import pytest
from psycopg import sql

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.job import Lease
from asyncq.outcome import (
    Cancelled,
    Change,
    Completed,
    Discarded,
    Outcome,
    Released,
    Retried,
    Snoozed,
)
from tests.sql.rows import claim, count, finish, ids, insert, job, running, value

Connection = psycopg.AsyncConnection

LOST, BUSY = False, True

TOKEN = 77


async def test_success_deletes_the_row(session: Session, conn: Connection) -> None:
    job_id, another = await running(conn, TOKEN), await running(conn, TOKEN)
    assert await finish(session, (job_id, TOKEN, Completed())) == {}
    assert await ids(conn, "running") == [another]


async def test_a_failure_waits_for_its_retry_and_keeps_the_error(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN, attempts=3)
    assert await finish(session, (job_id, TOKEN, Retried(90.5, "ValueError: ü"))) == {}
    row = await job(conn, job_id)
    assert row is not None
    assert (row["state"], row["attempts"], row["last_error"]) == ("available", 3, "ValueError: ü")
    assert (row["locked_by"], row["lease_token"], row["leased_until"]) == (None, None, None)
    assert row["finished_at"] is None
    left = row["run_at"] - await value(conn, "select now()")
    assert timedelta(seconds=60) < left <= timedelta(seconds=90.5)


async def test_a_snooze_gives_the_attempt_back_and_keeps_the_last_error(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN, attempts=3, last_error="earlier")
    assert await finish(session, (job_id, TOKEN, Snoozed(3600.0))) == {}
    row = await job(conn, job_id)
    assert row is not None
    assert (row["state"], row["attempts"], row["last_error"]) == ("available", 2, "earlier")
    assert row["run_at"] > await value(conn, "select now() + interval '59 minutes'")


async def test_a_release_gives_the_attempt_back_and_keeps_the_place_in_the_line(
    session: Session, conn: Connection
) -> None:
    job_id = await running(conn, TOKEN, attempts=1, run_at=sql.SQL("'2024-01-01 00:00+00'"), last_error="earlier")
    before = await job(conn, job_id)
    assert before is not None
    assert await finish(session, (job_id, TOKEN, Released())) == {}
    row = await job(conn, job_id)
    assert row is not None
    assert (row["state"], row["attempts"], row["last_error"]) == ("available", 0, "earlier")
    assert row["run_at"] == before["run_at"]
    assert await claim(session) == [job_id]


async def test_attempts_given_back_never_fall_below_none(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN, attempts=0)
    await finish(session, (job_id, TOKEN, Released()))
    assert await value(conn, "select attempts from asyncq.jobs") == 0


@pytest.mark.parametrize(
    ("outcome", "state"), [(Cancelled("not wanted"), "cancelled"), (Discarded("not wanted"), "discarded")]
)
async def test_an_ended_job_is_kept_with_its_reason_and_time(
    session: Session, conn: Connection, outcome: Outcome, state: str
) -> None:
    job_id = await running(conn, TOKEN, attempts=4)
    assert await finish(session, (job_id, TOKEN, outcome)) == {}
    row = await job(conn, job_id)
    assert row is not None
    assert (row["state"], row["attempts"], row["last_error"]) == (state, 4, "not wanted")
    assert (row["locked_by"], row["lease_token"], row["leased_until"]) == (None, None, None)
    assert timedelta(0) <= await value(conn, "select now()") - row["finished_at"] < timedelta(seconds=30)
    assert await claim(session) == []


@pytest.mark.parametrize(
    "outcome", [Completed(), Retried(0.0, "e"), Snoozed(0.0), Released(), Cancelled("r"), Discarded("e")]
)
async def test_an_outcome_under_another_token_is_lost_and_changes_nothing(
    session: Session, conn: Connection, outcome: Outcome
) -> None:
    job_id = await running(conn, TOKEN)
    before = await job(conn, job_id)
    assert await finish(session, (job_id, TOKEN + 1, outcome)) == {(job_id, TOKEN + 1): LOST}
    assert await job(conn, job_id) == before


async def test_a_job_that_is_gone_waits_or_has_ended_is_lost(session: Session, conn: Connection) -> None:
    waiting = await insert(conn)
    ended = await insert(conn, state="discarded", finished_at=sql.SQL("now()"))
    outcomes = [(job_id, TOKEN, Completed()) for job_id in (waiting, ended, 10**9)]
    assert await finish(session, *outcomes) == {(job_id, TOKEN): LOST for job_id, _, _ in outcomes}
    assert await count(conn) == 2


async def test_the_worker_that_holds_the_new_claim_cannot_finish_it_with_the_old_one(
    session: Session, conn: Connection
) -> None:
    old, new = 1, 2
    taken_again, fresh = await running(conn, new), await running(conn, new)
    unwritten = await finish(session, (taken_again, old, Completed()), (fresh, new, Completed()))
    assert unwritten == {(taken_again, old): LOST}
    assert await ids(conn, "running") == [taken_again]


async def test_both_tokens_of_one_job_in_one_batch_write_only_the_present_one(
    session: Session, conn: Connection
) -> None:
    job_id = await running(conn, 2, attempts=2)
    unwritten = await finish(session, (job_id, 1, Completed()), (job_id, 2, Retried(0.0, "failed")))
    assert unwritten == {(job_id, 1): LOST}
    row = await job(conn, job_id)
    assert row is not None
    assert (row["state"], row["attempts"], row["last_error"]) == ("available", 2, "failed")


async def test_a_row_that_a_transaction_holds_is_busy_and_the_others_are_written(
    session: Session, conn: Connection, tx_conn: Connection
) -> None:
    held, changed, deleted = [await running(conn, TOKEN) for _ in range(3)]
    await tx_conn.execute("select 1 from asyncq.jobs where id = %s for update", (held,))
    outcomes = [(held, TOKEN, Completed()), (changed, TOKEN, Retried(0.0, "e")), (deleted, TOKEN, Completed())]
    with anyio.fail_after(5):
        assert await finish(session, *outcomes) == {(held, TOKEN): BUSY}
    assert await ids(conn, "running") == [held]
    assert await ids(conn) == [changed]
    await tx_conn.rollback()
    assert await finish(session, outcomes[0]) == {}
    assert await ids(conn, "running") == []


async def test_many_outcomes_of_every_kind_in_one_batch(session: Session, conn: Connection) -> None:
    kinds: list[Outcome] = [Completed(), Retried(60.0, "r"), Snoozed(60.0), Released(), Cancelled("c"), Discarded("d")]
    given = [(await running(conn, TOKEN + i), TOKEN + i, kinds[i % 6]) for i in range(60)]
    assert await finish(session, *given) == {}
    assert await count(conn) == 50
    for state, number in (("available", 30), ("cancelled", 10), ("discarded", 10), ("running", 0)):
        assert len(await ids(conn, state)) == number


async def test_an_empty_batch_does_nothing(session: Session, conn: Connection) -> None:
    await running(conn, TOKEN)
    assert await jobs.finish(session, "asyncq", []) == {}
    assert await jobs.complete(session, "asyncq", []) == {}
    assert await count(conn) == 1


async def test_a_heartbeat_just_before_does_not_make_it_lost(
    session: Session, conn: Connection, tx_conn: Connection
) -> None:
    job_id = await running(conn, TOKEN)
    await tx_conn.execute("update asyncq.jobs set leased_until = now() + interval '1 minute' where id = %s", (job_id,))
    assert await finish(session, (job_id, TOKEN, Completed())) == {(job_id, TOKEN): BUSY}
    await tx_conn.commit()
    assert await finish(session, (job_id, TOKEN, Completed())) == {}


async def test_a_delay_of_centuries_is_no_error(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN)
    await jobs.finish(
        session, "asyncq", [(Lease(job_id, TOKEN, 60), Change("available", delay=36_500 * 86_400.0, error="e"))]
    )
    assert (
        await value(conn, "select extract(year from run_at - now()) >= 0 and run_at > now() from asyncq.jobs") is True
    )


async def test_what_the_database_refuses_leaves_the_whole_batch_unwritten(session: Session, conn: Connection) -> None:
    """The batch comes again, one by one; what was written already would then be taken for lost."""
    first, refused = await running(conn, TOKEN), await running(conn, TOKEN)
    batch = [
        (Lease(first, TOKEN, 60), Change("discarded", error="fine")),
        (Lease(refused, TOKEN, 60), Change("discarded", error="NUL \x00")),
    ]
    with pytest.raises((psycopg.DataError, ValueError)):
        await jobs.finish(session, "asyncq", batch)
    assert await ids(conn, "running") == [first, refused]


async def test_a_state_that_is_none_is_refused(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN)
    with pytest.raises(psycopg.errors.CheckViolation):
        await jobs.finish(session, "asyncq", [(Lease(job_id, TOKEN, 60), Change("no such state"))])
    assert await ids(conn, "running") == [job_id]
