"""Notifications are left out while no idle worker needs them, and come again when one does; no wake-up is lost."""

import os
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

import anyio
import psycopg
import pytest
from psycopg import IsolationLevel, errors

from asyncq import Queue, WorkerOptions
from asyncq.worker import quiet
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.servers import majors
from tests.sql.rows import notifications
from tests.truth import TruthLog
from tests.worker import app
from tests.worker.inside import recording, running_worker

Connection = psycopg.AsyncConnection

RARE = timedelta(seconds=300)
"""A poll that brings nothing to light within a test."""


@pytest.fixture
async def listening(dsn: str) -> AsyncGenerator[Connection]:
    """A connection that hears what workers could hear."""
    async with await Connection.connect(dsn, autocommit=True) as conn:
        await conn.execute("listen asyncq")
        yield conn


async def locks(conn: Connection) -> list[str]:
    """Give what workers hold of their queues' locks."""
    cursor = await conn.execute(
        """select l.mode from pg_locks l join pg_stat_activity a using (pid)
        where l.locktype = 'advisory' and l.granted and a.application_name like 'asyncq listen %' order by l.mode"""
    )
    return [mode for (mode,) in await cursor.fetchall()]


async def becomes(conn: Connection, *modes: str, within: float = 5.0) -> None:
    async def as_wanted() -> bool:
        assert await locks(conn) == list(modes)
        return True

    await eventually(as_wanted, within, describe=f"{modes} are held")


IDLE, KEEPER = "ShareLock", "ExclusiveLock"


async def test_senders_are_silent_while_a_worker_has_a_backlog_and_only_then(
    dsn: str, conn: Connection, listening: Connection
) -> None:
    queue = Queue()
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        await anyio.sleep(0.02)
        ran.append(number)

    async with running_worker(queue, dsn, WorkerOptions(concurrency=5, poll=RARE)):
        await becomes(conn, IDLE)
        await task.defer_many(conn, [task.args(number) for number in range(300)])
        await becomes(conn, KEEPER)
        await notifications(listening)
        for number in range(300, 330):
            await task.defer(conn, number)
        assert await notifications(listening) == []
        assert await locks(conn) == [KEEPER]
        await eventually(lambda: len(ran) == 330, 10, describe="all run, those that came in silence too")
        await becomes(conn, IDLE)
        await task.defer(conn, 330)
        assert await notifications(listening) == [("asyncq", "default")]
        await eventually(lambda: len(ran) == 331, 1, describe="it is followed")
    assert ran[-1] == 330


async def test_a_steady_stream_of_writers_that_hold_each_other_up_is_silent_too(
    dsn: str, conn: Connection, listening: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One writer waits for nobody, so this has to do for many.
    monkeypatch.setattr(quiet, "PRESSING", 0)
    queue = Queue()
    task, ran = recording(queue)

    async with running_worker(queue, dsn, WorkerOptions(poll=RARE)):
        for number in range(400):
            await task.defer(conn, number)
            await anyio.sleep(0.001)
        heard = len(await notifications(listening))
        await eventually(lambda: len(ran) == 400, describe="all run")
        await becomes(conn, IDLE)
    assert 0 < heard < 100


async def test_a_job_of_a_new_priority_is_found_in_a_silent_backlog(dsn: str, conn: Connection) -> None:
    queue = Queue()
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        await anyio.sleep(0.01)
        ran.append(number)

    async with running_worker(queue, dsn, WorkerOptions(concurrency=2, poll=RARE)):
        await task.defer_many(conn, [task.args(number) for number in range(500)])
        await becomes(conn, KEEPER)
        await task.options(priority=9).defer(conn, 1000)
        await eventually(lambda: 1000 in ran, 1, describe="it comes before the others")
        assert len(ran) < 450


@majors(12, 18)
async def test_jobs_of_transactions_that_are_held_beyond_a_silence_are_found(
    dsn: str, conn: Connection, listening: Connection
) -> None:
    queue = Queue()
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        ran.append(number)
        if number < 100:
            await anyio.sleep(0.02)

    async with AsyncExitStack() as stack:
        holders = [await stack.enter_async_context(await Connection.connect(dsn)) for _ in range(3)]
        await stack.enter_async_context(running_worker(queue, dsn, WorkerOptions(concurrency=2, poll=RARE)))
        await task.defer_many(conn, [task.args(number) for number in range(40)])
        await becomes(conn, KEEPER)
        await notifications(listening)
        levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE)
        for number, (holder, level) in enumerate(zip(holders, levels, strict=True), start=100):
            await holder.set_isolation_level(level)
            await task.defer(holder, number)
        await becomes(conn, IDLE)
        assert len(ran) == 40
        for number, holder in enumerate(holders, start=100):
            await anyio.sleep(0.2)
            await holder.commit()
            await eventually(lambda wanted=number: ran[-1] == wanted, 1.0, describe="it is found")
        assert await notifications(listening) == []


async def test_a_worker_that_stops_leaves_notifications_on(dsn: str, conn: Connection, listening: Connection) -> None:
    queue = Queue()
    gate = anyio.Event()

    @queue.task(name="task")
    async def task() -> None:
        await gate.wait()

    async with running_worker(queue, dsn, WorkerOptions(concurrency=2, poll=RARE)) as inside:
        await task.defer_many(conn, [task.args()] * 10)
        await becomes(conn, KEEPER)
        inside.worker.stop()
        await becomes(conn, within=1.0)
        await notifications(listening)
        await task.defer(conn)
        assert await notifications(listening) == [("asyncq", "default")]
        gate.set()


async def test_a_worker_that_is_killed_leaves_notifications_on(
    conn: Connection, truth: TruthLog, listening: Connection, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--queue", "work", "--concurrency", "1")
    await worker.wait_ready()
    await app.lasting.defer_many(conn, [app.lasting.args(3600.0)] * 3)
    await becomes(conn, KEEPER, within=10)
    await notifications(listening)
    await app.lasting.defer(conn, 1.0)
    assert await notifications(listening) == []
    worker.kill()
    await becomes(conn, within=1.0)
    await app.lasting.defer(conn, 1.0)
    assert await notifications(listening) == [("asyncq", "work")]


async def test_a_second_worker_hears_of_work_beside_one_whose_slots_are_taken(dsn: str, conn: Connection) -> None:
    queue = Queue()
    gate = anyio.Event()
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        ran.append(number)
        if number == 0:
            await gate.wait()

    options = WorkerOptions(concurrency=1, poll=RARE)
    async with running_worker(queue, dsn, options):
        await task.defer(conn, 0)
        await eventually(lambda: ran == [0], describe="the only slot is taken")
        await becomes(conn, KEEPER)
        async with running_worker(queue, dsn, options):
            # At any time, and before and after the first has given way.
            for number in range(1, 6):
                await task.defer(conn, number)
                await eventually(lambda wanted=number: ran[-1] == wanted, 1.0, describe="the other runs it")
                await anyio.sleep(0.2)
            await becomes(conn, IDLE)
            assert len(ran) == 6
            gate.set()
        await becomes(conn, IDLE)


async def test_one_writer_is_followed_and_no_worker_looks_by_itself(
    dsn: str, conn: Connection, listening: Connection
) -> None:
    queue = Queue()
    task, ran = recording(queue)

    async with running_worker(queue, dsn, WorkerOptions(poll=RARE)):
        await becomes(conn, IDLE)
        await notifications(listening)
        for number in range(200):
            await task.defer(conn, number)
            await anyio.sleep(0.002)
        assert await locks(conn) == [IDLE]
        await eventually(lambda: len(ran) == 200, describe="all run")
        assert len(await notifications(listening)) == 200


async def test_two_workers_of_a_stream_end_up_asleep(
    dsn: str, conn: Connection, listening: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "PRESSING", 0)
    queue = Queue()
    task, ran = recording(queue)

    options = WorkerOptions(poll=RARE)
    async with running_worker(queue, dsn, options), running_worker(queue, dsn, options):
        await becomes(conn, IDLE, IDLE)
        for number in range(300):
            await task.defer(conn, number)
        assert KEEPER in await locks(conn)
        await eventually(lambda: len(ran) == 300, describe="all run")
        await becomes(conn, IDLE, IDLE)
        await task.defer(conn, 300)
        await eventually(lambda: len(ran) == 301, 1, describe="it is followed")


async def test_a_worker_whose_claims_fail_keeps_nothing_silent(
    dsn: str, conn: Connection, listening: Connection
) -> None:
    queue = Queue()
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        await anyio.sleep(0.01)
        ran.append(number)

    async with running_worker(queue, dsn, WorkerOptions(concurrency=2, poll=RARE)):
        await task.defer_many(conn, [task.args(number) for number in range(200)])
        await becomes(conn, KEEPER)
        await conn.execute("alter table asyncq.jobs rename to jobs_away")
        await becomes(conn)
        await conn.execute("alter table asyncq.jobs_away rename to jobs")
        await eventually(lambda: len(ran) == 200, 15, describe="all run")
        await becomes(conn, IDLE)


class Senders:
    """Put jobs in, each in a transaction that does what transactions do."""

    def __init__(self, dsn: str, queue: Queue, chance: random.Random) -> None:
        self.dsn = dsn
        self.chance = chance
        self.committed: set[int] = set()
        self.ran: set[int] = set()
        self.numbers = iter(range(1_000_000))

        @queue.task(name="task")
        async def task(number: int) -> None:
            self.ran.add(number)

        self.task = task

    async def send(self, times: int) -> None:
        async with await Connection.connect(self.dsn) as conn:
            for _ in range(times):
                await anyio.sleep(self.chance.random() ** 3 * 0.2)
                await conn.set_isolation_level(self.chance.choice(list(IsolationLevel)))
                try:
                    await self.transaction(conn)
                except errors.SerializationFailure:
                    await conn.rollback()

    async def transaction(self, conn: Connection) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            await conn.execute("select count(*) from asyncq.jobs")
        if chance.random() < 0.2:
            await conn.execute("savepoint undone")
            await self.task.defer(conn, -1)
            await conn.execute("rollback to undone")
        if chance.random() < 0.2:
            await conn.execute("savepoint kept")
        numbers = await self.defer(conn)
        await anyio.sleep(chance.random() ** 3 * 0.5)
        if chance.random() < 0.1:
            await conn.rollback()
        else:
            await conn.commit()
            self.committed.update(numbers)

    async def defer(self, conn: Connection) -> Sequence[int]:
        numbers = [next(self.numbers) for _ in range(self.chance.choice([1, 1, 1, 3]))]
        if len(numbers) > 1:
            await self.task.defer_many(conn, [self.task.args(number) for number in numbers])
        elif self.chance.random() < 0.3:
            await conn.execute("select asyncq.defer('task', jsonb_build_object('number', %s::int))", numbers)
        else:
            await self.task.defer(conn, numbers[0])
        return numbers

    def none_is_left(self) -> bool:
        return self.committed <= self.ran


@majors(12, 18)
async def test_no_wake_up_is_lost(dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers go in and out of all their states, beside senders that take their time and listeners that are killed.

    A worker that slept beside a job would sleep for minutes. The spans are short, so that there are many changes.
    """
    monkeypatch.setattr(quiet, "FOUND_SECONDS", 0.03)
    monkeypatch.setattr(quiet, "HEARD_SECONDS", 0.1)
    monkeypatch.setattr(quiet, "OFTEN", 2)
    monkeypatch.setattr(quiet, "PRESSING", 0)
    monkeypatch.setattr(quiet, "PRESSURE_SECONDS", 0.01)
    monkeypatch.setattr(quiet, "LONGEST_PRESSURE_SECONDS", 0.05)
    chance = random.Random(7)
    queue = Queue()
    senders = Senders(dsn, queue, chance)
    states: set[str] = set()
    async with AsyncExitStack() as workers:
        for _ in range(2):
            await workers.enter_async_context(running_worker(queue, dsn, WorkerOptions(concurrency=20, poll=RARE)))
        for _ in range(6):
            async with anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(senders.send, 3)
                for _ in range(12):
                    await anyio.sleep(chance.random() * 0.1)
                    states.update(await locks(conn))
                    if chance.random() < 0.2:
                        await conn.execute(
                            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like %s"
                            " order by random() limit 1",
                            (f"asyncq listen %:{os.getpid()}:%",),
                        )
            await eventually(senders.none_is_left, 3, describe="all that was committed has run")
    assert states == {IDLE, KEEPER}
    assert len(senders.committed) > 150
