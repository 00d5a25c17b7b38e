"""Higher priorities run first; a worker serves the queues it is given, by weight or strictly in order."""

import psycopg
import pytest

from asyncq import ConfigurationError, Queue, Worker
from tests.fundamentals.conftest import Work

Connection = psycopg.AsyncConnection

ran: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    ran.clear()


heavy, light = Queue("heavy", weight=3), Queue("light")


@heavy.task(name="lift")
async def lift(what: str) -> None:
    ran.append(what)


@light.task(name="carry")
async def carry(what: str) -> None:
    ran.append(what)


async def test_higher_priorities_run_first_and_equal_ones_in_the_order_of_coming(conn: Connection, work: Work) -> None:
    for what, priority in (("c", 0), ("e", -5), ("a", 5), ("d", 0), ("b", 5)):
        await lift.options(priority=priority).defer(conn, what)
    await work(heavy, concurrency=1)
    assert ran == ["a", "b", "c", "d", "e"]


async def test_a_worker_serves_only_its_queues(conn: Connection, work: Work) -> None:
    await lift.defer(conn, "heavy")
    await carry.defer(conn, "light")
    await work(light)
    assert ran == ["light"]
    await work(heavy)
    assert ran == ["light", "heavy"]


async def test_two_queues_share_the_slots_by_their_weights(conn: Connection, work: Work) -> None:
    await lift.defer_many(conn, [lift.args("heavy") for _ in range(60)])
    await carry.defer_many(conn, [carry.args("light") for _ in range(60)])
    await work(heavy, light, concurrency=4)
    # While both have work, three of four slots are the heavy one's.
    assert 25 <= ran[:40].count("heavy") <= 35
    assert (ran.count("heavy"), ran.count("light")) == (60, 60)


async def test_strictly_the_first_queue_goes_first(conn: Connection, work: Work) -> None:
    await lift.defer_many(conn, [lift.args("heavy") for _ in range(20)])
    await carry.defer_many(conn, [carry.args("light") for _ in range(20)])
    await work(light, heavy, concurrency=1, strict=True)
    assert ran == ["light"] * 20 + ["heavy"] * 20


async def test_a_job_whose_task_nobody_here_knows_waits_untouched(conn: Connection, work: Work) -> None:
    await conn.execute("select asyncq.defer('of the next release', queue => 'heavy', priority => 9)")
    await lift.defer(conn, "known")
    await work(heavy)
    assert ran == ["known"]
    cursor = await conn.execute("select state, attempts from asyncq.jobs")
    assert await cursor.fetchall() == [("available", 0)]


async def test_a_renamed_task_runs_the_jobs_of_its_earlier_name(conn: Connection, work: Work) -> None:
    renamed = Queue("heavy")

    @renamed.task(name="hoist", aliases=["lift"])
    async def hoist(what: str) -> None:
        ran.append(f"hoisted {what}")

    await lift.defer(conn, "a")
    await work(renamed)
    assert ran == ["hoisted a"]


def test_two_queues_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two Queue objects named 'heavy'"):
        Worker([heavy, Queue("heavy")], "postgresql://localhost/x")


def test_queues_of_two_schemas_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="one schema"):
        Worker([heavy, Queue("elsewhere", schema="elsewhere")], "postgresql://localhost/x")
