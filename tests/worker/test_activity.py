"""What was done and what waits, over time, as workers note it."""

from datetime import timedelta

import psycopg

from asyncq import Queue, RetryPolicy, Worker, WorkerOptions
from asyncq.db import activity
from asyncq.db.connection import Session, address_of
from asyncq.job import Activity, Depth
from tests.eventually import eventually
from tests.sql.rows import rows, value
from tests.worker.inside import running_worker

Connection = psycopg.AsyncConnection


async def test_workers_note_how_runs_ended(dsn: str, conn: Connection) -> None:
    first, second = Queue("first", max_attempts=2, retry=RetryPolicy(base=timedelta(milliseconds=1))), Queue("second")

    @first.task(name="work")
    async def work(number: int) -> None:
        if number == 0:
            raise ValueError

    @second.task(name="other")
    async def other() -> None: ...

    await work.defer_many(conn, [work.args(number) for number in range(5)])
    await other.defer(conn)

    async def ended() -> bool:
        return await value(conn, "select count(*) from asyncq.jobs where state <> 'discarded'") == 0

    async with running_worker([first, second], dsn):
        await eventually(ended)
    # The rest is said when it leaves.
    noted = await activity.activity(conn, "asyncq", seconds=3600, step=86400)
    summed: dict[str, list[int]] = {}
    for each in noted:
        figures = (each.completed, each.failed, each.discarded, each.snoozed)
        summed[each.queue] = [a + b for a, b in zip(summed.get(each.queue, [0] * 4), figures, strict=True)]
    assert summed == {"first": [4, 1, 1, 0], "second": [1, 0, 0, 0]}
    assert all(0 <= each.ran_seconds < 60 and 0 <= each.waited_seconds < 60 for each in noted)
    only = await activity.activity(conn, "asyncq", seconds=3600, step=86400, queue="second")
    assert {each.queue for each in only} == {"second"}


async def test_what_was_done_is_added_up_by_steps(conn: Connection) -> None:
    await conn.execute(
        "insert into asyncq.activity select '2030-01-01 00:00+00'::timestamptz + n * interval '1 minute', 'q',"
        " 'task' || n % 2, 1, 2, 3, 4, 5, 6, 0.5, 0.25 from generate_series(0, 119) n"
    )
    [first, second] = await activity.activity(conn, "asyncq", seconds=3600, step=3600)
    assert first.at.isoformat() == "2030-01-01T00:00:00+00:00"
    assert second.at - first.at == timedelta(hours=1)
    assert first == Activity(first.at, "q", 60, 120, 180, 240, 300, 360, 30.0, 15.0)


async def test_workers_note_once_a_minute_what_waits(dsn: str, conn: Connection) -> None:
    queue = Queue("shop")

    @queue.task(name="work")
    async def work() -> None: ...

    await work.options(delay=timedelta(hours=1)).defer_many(conn, [work.args()] * 7)
    await work.options(queue="elsewhere").defer(conn)
    await conn.execute("update asyncq.jobs set run_at = now() - interval '90 seconds' where queue = 'elsewhere'")

    async def noted() -> bool:
        return len(await activity.depths(conn, "asyncq", seconds=3600, step=60)) >= 2

    async with running_worker(queue, dsn), running_worker(Queue("other"), dsn):
        await eventually(noted)
    minutes = {each.at: each for each in await activity.depths(conn, "asyncq", seconds=3600, step=60, queue="shop")}
    for at, shop in minutes.items():
        assert shop == Depth(at, "shop", 0, None, 7, 0, 0, 0)
    elsewhere = (await activity.depths(conn, "asyncq", seconds=3600, step=60, queue="elsewhere"))[0]
    assert elsewhere.due == 1
    assert elsewhere.oldest_due_seconds is not None
    assert 89 < elsewhere.oldest_due_seconds < 600
    twice = await rows(conn, "select at, queue from asyncq.depths group by 1, 2 having count(*) > 1")
    assert twice == []


async def test_what_could_not_be_said_is_said_later(dsn: str, conn: Connection) -> None:
    queue = Queue("shop")

    @queue.task(name="work")
    async def work() -> None: ...

    await conn.execute("alter table asyncq.activity add constraint none check (completed < 0)")
    worker = Worker([queue], dsn, WorkerOptions())
    async with running_worker(queue, dsn) as inside:
        await work.defer_many(conn, [work.args()] * 5)

        async def done() -> bool:
            return await value(conn, "select count(*) from asyncq.jobs") == 0

        await eventually(done)
        session = Session(address_of(dsn, "test"))
        await inside.worker._presence.report(session)
        await conn.execute("alter table asyncq.activity drop constraint none")
        assert await value(conn, "select count(*) from asyncq.activity") == 0
        await inside.worker._presence.report(session)
        assert await value(conn, "select sum(completed) from asyncq.activity") == 5
        await session.close()
    assert await value(conn, "select sum(completed) from asyncq.activity") == 5
    assert worker.id != inside.worker.id


async def test_old_notes_are_deleted(dsn: str, conn: Connection) -> None:
    await conn.execute(
        "insert into asyncq.activity select now() - n * interval '1 day', 'q', 't', 1, 0, 0, 0, 0, 0, 0, 0"
        " from generate_series(1, 20) n"
    )
    await conn.execute(
        "insert into asyncq.depths select now() - n * interval '1 day', 'q', 1, 0, 0, 0, 0, 0"
        " from generate_series(1, 20) n"
    )

    async def left() -> bool:
        counts = await rows(
            conn,
            "select (select count(*) from asyncq.activity), (select count(*) from asyncq.depths where queue = 'q')",
        )
        return counts == [(7, 7)]

    async with running_worker(Queue("shop"), dsn, WorkerOptions(cleanup=timedelta(seconds=1))):
        await eventually(left, 10)
