"""History: what became of each run, of queues that keep it, through workers, operators and the passing of days."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import sql

from asyncq import Cancel, ConfigurationError, InvalidArgsError, Queue, RetryPolicy, Snooze, Worker, WorkerOptions
from asyncq.db import history
from asyncq.db.connection import Session, address_of
from tests.eventually import eventually
from tests.servers import majors
from tests.sql.rows import rows, value
from tests.worker.inside import running_worker

Connection = psycopg.AsyncConnection
SOON = RetryPolicy(base=timedelta(milliseconds=1))


def kept(history: timedelta | None = timedelta(days=30), **options: Any) -> Queue:
    return Queue("kept", history=history, retry=SOON, **options)


async def work_off(dsn: str, *queues: Queue) -> None:
    await Worker(queues, dsn, WorkerOptions(burst=True)).run()


async def said(queue: Queue, conn: Connection, job_id: int) -> list[tuple[str, int]]:
    return [(event.event, event.attempt) for event in await queue.timeline(conn, job_id)]


@majors(12, 18)
async def test_each_end_of_a_run_is_kept(dsn: str, conn: Connection) -> None:
    queue = kept(max_attempts=2)
    snoozed: list[int] = []

    @queue.task(name="work")
    async def work(how: str) -> None:
        match how:
            case "fails":
                raise ZeroDivisionError("nothing to divide by")
            case "snoozes" if not snoozed:
                snoozed.append(1)
                raise Snooze(timedelta(milliseconds=1))
            case "cancels":
                raise Cancel("enough")
            case _:
                await anyio.sleep(0.02)

    ids = {how: (await work.defer(conn, how)).id for how in ("works", "fails", "snoozes", "cancels")}

    async def all_ended() -> bool:
        return await value(conn, "select count(*) from asyncq.jobs where state in ('available', 'running')") == 0

    async with running_worker(queue, dsn) as inside:
        await eventually(all_ended)
    assert await said(queue, conn, ids["works"]) == [("completed", 1)]
    assert await said(queue, conn, ids["fails"]) == [("failed", 1), ("discarded", 2)]
    assert await said(queue, conn, ids["snoozes"]) == [("snoozed", 1), ("completed", 1)]
    assert await said(queue, conn, ids["cancels"]) == [("cancelled", 1)]
    [works] = await queue.timeline(conn, ids["works"])
    assert (works.queue, works.task, works.worker, works.error) == ("kept", "work", inside.worker.id, None)
    assert works.started_at is not None
    assert works.created_at <= works.started_at
    assert timedelta(milliseconds=15) < works.at - works.started_at < timedelta(seconds=5)
    failed, discarded = await queue.timeline(conn, ids["fails"])
    for event in (failed, discarded):
        assert event.error is not None
        assert event.error.endswith("ZeroDivisionError: nothing to divide by")
    [cancelled] = await queue.timeline(conn, ids["cancels"])
    assert cancelled.error == "enough"

    ended, before = await queue.ended(conn)
    assert [(event.job_id, event.event) for event in ended] == [
        (ids["cancels"], "cancelled"), (ids["snoozes"], "completed"), (ids["fails"], "discarded"),
        (ids["works"], "completed"),
    ]  # fmt: skip
    assert before is None
    assert [event.job_id for event in (await queue.ended(conn, event="discarded")).events] == [ids["fails"]]


async def test_a_queue_that_keeps_none_leaves_nothing_beside_one_that_does(dsn: str, conn: Connection) -> None:
    queue, other = kept(), Queue("other")

    @queue.task(name="kept")
    async def recorded() -> None: ...

    @other.task(name="other")
    async def unrecorded() -> None: ...

    await recorded.defer_many(conn, [recorded.args()] * 300)
    await unrecorded.defer_many(conn, [unrecorded.args()] * 300)
    await work_off(dsn, queue, other)
    assert await rows(conn, "select queue, event, count(*) from asyncq.job_history group by 1, 2") == [
        ("kept", "completed", 300)
    ]
    # Code that keeps it no longer, says so when it starts.
    await work_off(dsn, kept(history=None))
    assert await rows(conn, "select name::text, history from asyncq.queues order by name") == [
        ("kept", None), ("other", None),
    ]  # fmt: skip


async def test_an_interruption_a_rescue_and_what_operators_do_are_kept(dsn: str, conn: Connection) -> None:
    queue = kept(max_attempts=3, lease=timedelta(seconds=1))
    begun = anyio.Event()
    fails = True

    @queue.task(name="work")
    async def work() -> None:
        if not begun.is_set():
            begun.set()
            await anyio.sleep_forever()
        if fails:
            raise ValueError

    job = await work.defer(conn)
    async with running_worker(queue, dsn, WorkerOptions(grace=timedelta(0))):
        await begun.wait()
    assert await said(queue, conn, job.id) == [("interrupted", 1)]
    # A worker took it and died.
    await conn.execute(
        "update asyncq.jobs set state = 'running', attempts = 1, lease_token = 1, locked_by = 'gone',"
        " attempted_at = now() - interval '3 seconds', leased_until = now() - interval '1 second'"
    )

    async def discarded() -> bool:
        return await value(conn, "select count(*) from asyncq.jobs where state = 'discarded'") == 1

    async with running_worker(queue, dsn):
        await eventually(discarded, 20)
    expected = [("interrupted", 1), ("rescued", 1), ("failed", 2), ("discarded", 3)]
    assert await said(queue, conn, job.id) == expected
    rescued = (await queue.timeline(conn, job.id))[1]
    assert rescued.worker == "gone"
    assert "lease of attempt 1 ran out" in (rescued.error or "")

    # By whoever knows no more than the queue's name.
    assert await Queue("kept").replay(conn) == [job.id]
    assert await Queue("kept").cancel(conn, [job.id]) == [job.id]
    expected += [("replayed", 3), ("cancelled", 0)]
    assert await said(queue, conn, job.id) == expected
    # In a transaction that is rolled back nothing of it happened.
    async with conn.transaction(force_rollback=True):
        assert await queue.replay(conn, [job.id]) == [job.id]
    assert await said(queue, conn, job.id) == expected
    fails = False
    await queue.replay(conn, [job.id])
    await work_off(dsn, queue)
    assert await said(queue, conn, job.id) == [*expected, ("replayed", 0), ("completed", 1)]
    ends = [event.event for event in (await queue.ended(conn)).events]
    assert ends == ["completed", "cancelled", "discarded"], "of one job, the latest first"


async def test_a_rescue_for_good_is_kept_as_a_discard(dsn: str, conn: Connection) -> None:
    queue = kept(lease=timedelta(seconds=1))

    @queue.task(name="work")
    async def work() -> None: ...

    job = await work.defer(conn)
    await conn.execute(
        "update asyncq.jobs set state = 'running', attempts = 10, lease_token = 1, locked_by = 'gone',"
        " attempted_at = now(), leased_until = now() - interval '1 second'"
    )

    async def there() -> bool:
        return await said(queue, conn, job.id) == [("discarded", 10)]

    async with running_worker(queue, dsn):
        await eventually(there, 20)


async def test_a_page_goes_on_where_the_one_before_ended(conn: Connection) -> None:
    queue = kept()
    await conn.execute(
        "insert into asyncq.job_history (job_id, created_at, run_at, expires_on, attempt, event, queue, task)"
        " select n, now(), now(), current_date + n % 3, 1,"
        " case when n % 10 = 0 then 'discarded' when n % 2 = 0 then 'completed' else 'failed' end, 'kept',"
        " 'task' || n % 4 from generate_series(1, 1000) n"
    )

    async def listed(limit: int, **filters: Any) -> list[int]:
        found: list[int] = []
        events, before = await queue.ended(conn, limit=limit, **filters)
        while True:
            found += [event.job_id for event in events]
            if before is None:
                return found
            events, before = await queue.ended(conn, limit=limit, before=before, **filters)

    assert await listed(7) == list(range(1000, 0, -2))
    assert await listed(1000) == list(range(1000, 0, -2))
    assert await listed(7, event="discarded") == list(range(1000, 0, -10))
    assert await listed(7, event="completed", task="task2") == [n for n in range(998, 0, -4) if n % 10]
    assert await Queue("other").ended(conn) == ([], None)


@pytest.mark.parametrize(
    "filters", [{"event": "failed"}, {"event": 1}, {"task": ""}, {"before": 0}, {"limit": 0}, {"limit": 100_001}]
)
async def test_what_cannot_be_asked_is_refused(conn: Connection, filters: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgsError, match=next(iter(filters))):
        await kept().ended(conn, **filters)


@pytest.mark.parametrize("length", [timedelta(hours=23), timedelta(days=36_501), 30, "30 days"])
def test_history_of_other_lengths_is_refused(length: Any) -> None:
    with pytest.raises(ConfigurationError, match="history"):
        Queue("kept", history=length)


# --- Partitions -------------------------------------------------------------------------------------------------------


async def partitions(conn: Connection) -> list[int]:
    """The days from today on which the partitions' rows expire."""
    found = await rows(
        conn,
        "select to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD') - (now() at time zone 'UTC')::date"
        " from pg_inherits where inhparent = 'asyncq.job_history'::regclass"
        " and inhrelid::regclass::text ~ '_[0-9]{8}$' order by 1",
    )
    return [day for (day,) in found]


async def make_partition(conn: Connection, days: int) -> None:
    """Make the partition of a day counted from today."""
    day = await value(conn, "select (now() at time zone 'UTC')::date") + timedelta(days=days)
    await conn.execute(
        sql.SQL("create table asyncq.{} partition of asyncq.job_history for values from ({}) to ({})").format(
            sql.Identifier(f"job_history_{day:%Y%m%d}"), sql.Literal(day), sql.Literal(day + timedelta(days=1))
        )
    )


async def declare(session: Session, **days: float | None) -> None:
    lengths = {name: None if each is None else timedelta(days=each) for name, each in days.items()}
    await history.declare(session, "asyncq", lengths)


@pytest.fixture
async def session(dsn: str) -> Any:
    session = Session(address_of(dsn, "history"))
    yield session
    await session.close()


@majors(12, 18)
async def test_partitions_are_made_ahead_for_each_length(session: Session, conn: Connection) -> None:
    await declare(session, short=1, long=30, none=None)
    assert await history.keep(session, "asyncq") == 0
    assert await partitions(conn) == [1, 2, 3, 4, 30, 31, 32, 33]
    assert await history.keep(session, "asyncq") == 0
    assert await partitions(conn) == [1, 2, 3, 4, 30, 31, 32, 33]
    await declare(session, half=1.5)
    await history.keep(session, "asyncq")
    assert await partitions(conn) == [1, 2, 3, 4, 30, 31, 32, 33]


@majors(12, 18)
async def test_partitions_over_age_are_dropped_whole_with_whatever_is_in_them(
    session: Session, conn: Connection
) -> None:
    await declare(session, kept=1)
    await history.keep(session, "asyncq")
    for days in (-9, -1, 0):
        await make_partition(conn, days)
    await conn.execute(
        "insert into asyncq.job_history (job_id, created_at, run_at, expires_on, attempt, event, queue, task)"
        " select n, now(), now(), (now() at time zone 'UTC')::date - n, 1, 'completed', 'kept', 'task'"
        " from unnest('{9, 1, 0, -1}'::integer[]) n"
    )
    assert await history.keep(session, "asyncq") == 0
    assert await partitions(conn) == [0, 1, 2, 3, 4]
    assert await rows(conn, "select job_id from asyncq.job_history order by 1") == [(-1,), (0,)]


@majors(12, 18)
async def test_an_outcome_without_a_partition_is_kept_all_the_same(
    dsn: str, session: Session, conn: Connection
) -> None:
    queue = kept()

    @queue.task(name="work")
    async def work() -> None: ...

    async with running_worker(queue, dsn):
        # Nobody made tomorrow's, nor today's.
        found = await rows(
            conn,
            "select inhrelid::regclass::text from pg_inherits where inhparent = 'asyncq.job_history'::regclass"
            " and inhrelid::regclass::text ~ '_[0-9]{8}$'",
        )
        for (name,) in found:
            await conn.execute(f"drop table {name}".encode())
        ids = await work.defer_many(conn, [work.args()] * 20)

        async def done() -> bool:
            return await value(conn, "select count(*) from asyncq.jobs") == 0

        await eventually(done)
    assert await value(conn, "select count(*) from asyncq.job_history_default") == 20
    assert await said(queue, conn, ids[0]) == [("completed", 1)]
    # Its day stays where it is; the days that follow have their own.
    assert await history.keep(session, "asyncq") == 0
    assert await partitions(conn) == [31, 32, 33]
    assert await value(conn, "select count(*) from asyncq.job_history") == 20
    # When all of it is over age, it goes.
    await conn.execute("update asyncq.job_history_default set expires_on = current_date - 2")
    await history.keep(session, "asyncq")
    assert await value(conn, "select count(*) from asyncq.job_history") == 0


@majors(12, 18)
async def test_a_report_that_reads_history_holds_nobody_up(dsn: str, session: Session, conn: Connection) -> None:
    queue = kept(history=timedelta(days=1))

    @queue.task(name="work")
    async def work() -> None: ...

    longest: list[float] = []
    async with await psycopg.AsyncConnection.connect(dsn) as report, running_worker(queue, dsn):
        await make_partition(conn, -1)
        await report.execute("select count(*) from asyncq.job_history")
        assert await history.keep(session, "asyncq") == 1, "the drop waited a moment and is to be tried again"
        assert -1 in await partitions(conn)
        keeping = True

        async def keep() -> None:
            while keeping:
                assert await history.keep(session, "asyncq") == 1
                await anyio.sleep(0.02)

        async def done() -> bool:
            return await value(conn, "select count(*) from asyncq.jobs") == 0

        async with anyio.create_task_group() as group:
            group.start_soon(keep)
            for _ in range(20):
                began = anyio.current_time()
                await work.defer(conn)
                await eventually(done, 5)
                longest.append(anyio.current_time() - began)
            keeping = False
        assert max(longest) < 2.0
        await report.rollback()
        assert await history.keep(session, "asyncq") == 0
        assert -1 not in await partitions(conn)
    assert await value(conn, "select count(*) from asyncq.job_history") == 20


async def test_a_worker_makes_partitions_at_its_start_and_drops_them_in_time(dsn: str, conn: Connection) -> None:
    queue = kept(history=timedelta(days=7))

    async with running_worker(queue, dsn, WorkerOptions(cleanup=timedelta(seconds=1))):
        assert await partitions(conn) == [7, 8, 9, 10]
        await conn.execute("drop table asyncq.job_history_default")
        await make_partition(conn, -1)
        await conn.execute("create table asyncq.job_history_default partition of asyncq.job_history default")

        async def dropped() -> bool:
            return await partitions(conn) == [7, 8, 9, 10]

        await eventually(dropped, 10)


async def test_a_thousand_outcomes_are_one_statement_and_few_partitions_are_touched(dsn: str, conn: Connection) -> None:
    queue = kept()

    @queue.task(name="work")
    async def work(number: int) -> None:
        if number % 5 == 0:
            raise ValueError(number)

    ids = await work.defer_many(conn, [work.args(number) for number in range(1000)])
    await conn.execute("update asyncq.jobs set max_attempts = 1")
    await work_off(dsn, queue)
    assert await rows(conn, "select event, count(*) from asyncq.job_history group by 1 order by 1") == [
        ("completed", 800), ("discarded", 200),
    ]  # fmt: skip
    found: Sequence[Any] = (await queue.ended(conn, limit=1000)).events
    assert [event.job_id for event in found] == ids[::-1]
