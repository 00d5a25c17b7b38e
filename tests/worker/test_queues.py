"""Several queues in one worker, and bursts."""

import asyncio
from datetime import timedelta

import anyio
import psycopg
import pytest

from asyncq import ConfigurationError, ExitCode, Queue, TaskAlreadyRegisteredError, Worker, WorkerOptions
from tests.eventually import eventually
from tests.worker.inside import running_worker


async def test_a_flooded_queue_does_not_starve_another(dsn: str, conn: psycopg.AsyncConnection) -> None:
    flooded, small = Queue("flooded", weight=3), Queue("small", weight=1)
    order: list[str] = []

    @flooded.task(name="flood")
    async def flood() -> None:
        await asyncio.sleep(0.001)
        order.append("flooded")

    @small.task(name="drop")
    async def drop() -> None:
        await asyncio.sleep(0.001)
        order.append("small")

    await flood.defer_many(conn, [flood.args() for _ in range(400)])
    await drop.defer_many(conn, [drop.args() for _ in range(100)])
    async with running_worker([flooded, small], dsn, WorkerOptions(concurrency=4)):
        await eventually(lambda: len(order) == 500, 20, describe="all ran")
    # By weights, a quarter of what runs while both have work.
    assert 40 <= order[:200].count("small") <= 60


async def test_strict_order_serves_the_first_queue_first(dsn: str, conn: psycopg.AsyncConnection) -> None:
    first, second = Queue("first"), Queue("second", weight=1000)
    order: list[str] = []

    @first.task(name="one")
    async def one() -> None:
        order.append("first")

    @second.task(name="two")
    async def two() -> None:
        order.append("second")

    await two.defer_many(conn, [two.args() for _ in range(50)])
    await one.defer_many(conn, [one.args() for _ in range(50)])
    async with running_worker([first, second], dsn, WorkerOptions(concurrency=3, strict=True)):
        await eventually(lambda: len(order) == 100, 10, describe="all ran")
    assert order == ["first"] * 50 + ["second"] * 50


async def test_jobs_run_by_priority_then_by_time(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    order: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        order.append(number)

    for number, priority in ((1, 0), (2, -5), (3, 7), (4, 0), (5, 7), (6, -32768), (7, 32767)):
        await task.options(priority=priority).defer(conn, number)
    await task.options(priority=32767, delay=timedelta(hours=1)).defer(conn, 8)
    async with running_worker(queue, dsn, WorkerOptions(concurrency=1)):
        await eventually(lambda: len(order) == 7, describe="all due ones ran")
    assert order == [7, 3, 5, 1, 4, 2, 6]


async def test_a_burst_ends_when_nothing_is_due(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue, other = Queue(), Queue("other")
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        ran.append(number)
        if number < 20:
            # A job that puts in others: they belong to the burst.
            async with await psycopg.AsyncConnection.connect(dsn) as own:
                await task.options(queue="other").defer(own, number + 20)
        await asyncio.sleep(0.01)

    await task.defer_many(conn, [task.args(number) for number in range(20)])
    await task.options(delay=timedelta(hours=1)).defer(conn, 99)
    with anyio.fail_after(20):
        code = await Worker([queue, other], dsn, WorkerOptions(burst=True, concurrency=4)).run()
    assert code is ExitCode.STOPPED
    assert sorted(ran) == list(range(40))
    cursor = await conn.execute("select count(*), sum(attempts) from asyncq.jobs")
    assert await cursor.fetchone() == (1, 0)


async def test_a_burst_asks_every_queue_though_it_has_fewer_slots(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queues = [Queue(name) for name in ("a", "b", "c")]
    ran: list[int] = []

    @queues[2].task(name="task")
    async def task(number: int) -> None:
        ran.append(number)

    await task.defer_many(conn, [task.args(number) for number in range(5)])
    with anyio.fail_after(20):
        assert await Worker(queues, dsn, WorkerOptions(burst=True, concurrency=1)).run() is ExitCode.STOPPED
    assert sorted(ran) == list(range(5))


async def test_a_burst_on_an_empty_database_ends(dsn: str) -> None:
    code = await Worker([Queue()], dsn, WorkerOptions(burst=True)).run()
    assert code is ExitCode.STOPPED


def test_what_cannot_work_together_is_refused() -> None:
    dsn = "postgresql://localhost/nowhere"
    one, two = Queue("same"), Queue("same")
    with pytest.raises(ConfigurationError, match="two Queue objects named 'same'"):
        Worker([one, two], dsn)
    with pytest.raises(ConfigurationError, match="at least one queue"):
        Worker([], dsn)
    with pytest.raises(ConfigurationError, match="one schema"):
        Worker([Queue("a"), Queue("b", schema="other")], dsn)
    a, b = Queue("a"), Queue("b")
    a.task(name="task")(print_nothing)
    b.task(name="task")(print_nothing)
    with pytest.raises(TaskAlreadyRegisteredError, match="'task'"):
        Worker([a, b], dsn)


def print_nothing() -> None: ...


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"concurrency": 10_001},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"poll": timedelta(0)},
        {"poll": 60},
        {"grace": timedelta(seconds=-1)},
        {"grace": timedelta(days=8)},
        {"cleanup": timedelta(0)},
        {"strict": 1},
        {"burst": "yes"},
    ],
)
def test_options_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        WorkerOptions(**wrong)  # type: ignore[arg-type]
