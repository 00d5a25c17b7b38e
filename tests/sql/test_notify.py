"""Notifications: one a queue and transaction, at commit, with the queue's name, on the schema's channel."""

from datetime import datetime, timedelta

import psycopg
from psycopg import sql

from asyncq import Queue
from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.db.migrate import migrate
from asyncq.job import Lease
from asyncq.outcome import Cancelled, Completed, Discarded, Outcome, Released, Retried
from tests.servers import majors
from tests.sql.rows import claim, finish, job, notifications, running, value
from tests.sql.shop import draw, send

Connection = psycopg.AsyncConnection

EXPIRED = sql.SQL("now() - interval '1 second'")


async def test_a_job_wakes_its_queue_at_commit_and_not_before(tx_conn: Connection, listening: Connection) -> None:
    await send.defer(tx_conn)
    assert await notifications(listening) == []
    await tx_conn.commit()
    assert await notifications(listening) == [("asyncq", "emails")]


async def test_a_job_rolled_back_wakes_nobody(tx_conn: Connection, listening: Connection) -> None:
    await send.defer(tx_conn)
    await tx_conn.rollback()
    assert await notifications(listening) == []


async def test_one_notification_a_queue_and_transaction(tx_conn: Connection, listening: Connection) -> None:
    for _ in range(5):
        await send.defer(tx_conn)
    await draw.defer_many(tx_conn, [draw.args(number) for number in range(3_000)])
    await draw.options(queue="elsewhere").defer(tx_conn, 1)
    await tx_conn.execute("select asyncq.defer('t', queue => 'emails')")
    await tx_conn.commit()
    assert sorted(await notifications(listening)) == [("asyncq", each) for each in ("elsewhere", "emails", "reports")]


async def test_a_job_put_into_the_past_says_so(conn: Connection, listening: Connection) -> None:
    just_now: datetime = await value(conn, "select clock_timestamp()")
    past = just_now - timedelta(minutes=1)
    await send.options(run_at=past).defer(conn)
    await draw.options(run_at=past).defer_many(conn, [draw.args(1), draw.args(2)])
    await conn.execute("select asyncq.defer('t', queue => 'sql', run_at => now() - interval '1 minute')")
    assert sorted(await notifications(listening)) == [
        ("asyncq", f"\x01{each}") for each in ("emails", "reports", "sql")
    ]
    await send.options(run_at=just_now).defer(conn)
    await draw.options(run_at=just_now + timedelta(days=1)).defer(conn, 3)
    assert sorted(await notifications(listening)) == [("asyncq", "emails"), ("asyncq", "reports")]


@majors(12, 18)
async def test_the_longest_name_and_large_arguments_fit(
    session: Session, conn: Connection, listening: Connection
) -> None:
    longest = "\N{GRINNING FACE}" * 128
    assert len(longest.encode()) == 512
    deferred = await send.options(queue=longest).defer(conn, "\N{GRINNING FACE}" * 5_000)
    await conn.execute("select asyncq.defer(%s, queue => %s)", (longest, longest))
    assert await notifications(listening) == [("asyncq", longest)] * 2
    assert (await job(conn, deferred.id) or {})["args"] == {"text": "\N{GRINNING FACE}" * 5_000}
    assert len(await claim(session, {longest: 5}, tasks=[send.name, longest])) == 2


async def test_a_scheduled_job_wakes_too_so_that_its_time_is_known(conn: Connection, listening: Connection) -> None:
    await send.options(delay=timedelta(hours=1)).defer(conn)
    assert await notifications(listening) == [("asyncq", "emails")]


async def test_no_jobs_wake_nobody(conn: Connection, listening: Connection) -> None:
    await send.defer_many(conn, [])
    assert await notifications(listening) == []


async def test_what_becomes_available_again_wakes_and_what_ends_does_not(
    session: Session, conn: Connection, listening: Connection
) -> None:
    ended = [await running(conn, 1, queue="ended") for _ in range(3)]
    waits = [await running(conn, 1, queue=queue) for queue in ("a", "a", "b")]
    outcomes: list[Outcome] = [Completed(), Cancelled("c"), Discarded("d"), Retried(1.0, "e"), Released(), Released()]
    finished = [(job_id, 1, outcome) for job_id, outcome in zip([*ended, *waits], outcomes, strict=True)]
    assert await finish(session, *finished) == {}
    # What is put back into its old place says so: workers have read on from there.
    assert sorted(await notifications(listening)) == [("asyncq", "\x01a"), ("asyncq", "\x01b"), ("asyncq", "a")]


async def test_a_lost_outcome_wakes_nobody(session: Session, conn: Connection, listening: Connection) -> None:
    job_id = await running(conn, 1)
    assert await finish(session, (job_id, 2, Released())) == {(job_id, 2): False}
    assert await notifications(listening) == []


async def test_a_rescued_job_wakes_its_queue_and_a_discarded_one_does_not(
    session: Session, conn: Connection, listening: Connection
) -> None:
    for queue in ("a", "a", "b"):
        await running(conn, 1, queue=queue, leased_until=EXPIRED)
    await running(conn, 1, queue="dead", leased_until=EXPIRED, max_attempts=1)
    await running(conn, 1, queue="alive")
    await jobs.rescue(session, "asyncq", batch=10)
    assert sorted(await notifications(listening)) == [("asyncq", "\x01a"), ("asyncq", "\x01b")]


async def test_claims_heartbeats_and_cleanups_wake_nobody(
    session: Session, conn: Connection, listening: Connection
) -> None:
    await conn.execute("insert into asyncq.jobs (queue, task) values ('q', 't')")
    [job_id] = await claim(session, token=5)
    await jobs.heartbeat(session, "asyncq", [Lease(job_id, 5, 60)])
    await jobs.cleanup(session, "asyncq", retention={"q": timedelta(0)}, batch=10)
    assert await notifications(listening) == []


async def test_another_schema_has_a_channel_of_its_own(dsn: str, conn: Connection, listening: Connection) -> None:
    await migrate(dsn, schema="select")
    queue = Queue("emails", schema="select")

    @queue.task(name="t")
    async def task() -> None: ...

    await task.defer(conn)
    await conn.execute('select "select".defer(%s)', ("t",))
    await task.defer_many(conn, [task.args()])
    assert await notifications(listening) == []
    await listening.execute('listen "select"')
    await task.defer(conn)
    assert await notifications(listening) == [("select", "emails")]
    assert await value(conn, 'select count(*) from "select".jobs') == 4
    assert await value(conn, "select count(*) from asyncq.jobs") == 0
