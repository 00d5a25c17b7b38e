"""What failed for good waits as a dead letter: look at it, mend the cause, and replay it."""

from datetime import timedelta

import anyio
import psycopg
import pytest

from asyncq import JobState, Queue, Worker, WorkerOptions
from tests.eventually import eventually
from tests.fundamentals.conftest import Work

Connection = psycopg.AsyncConnection

invoices = Queue("invoices", max_attempts=1)

printer = {"has paper": False}
printed: list[int] = []


@invoices.task(name="print_invoice")
async def print_invoice(number: int) -> None:
    if not printer["has paper"]:
        raise OSError("no paper")
    printed.append(number)


@pytest.fixture(autouse=True)
def forget() -> None:
    printed.clear()
    printer["has paper"] = False


async def test_look_mend_replay(conn: Connection, work: Work) -> None:
    ids = await print_invoice.defer_many(conn, [print_invoice.args(n) for n in (1, 2, 3)])
    await work(invoices)

    dead = await invoices.discarded(conn)
    assert sorted(job.id for job in dead) == ids
    assert {job.state for job in dead} == {JobState.DISCARDED}
    assert sorted(job.args["number"] for job in dead) == [1, 2, 3]
    assert all(job.last_error is not None and "no paper" in job.last_error for job in dead)

    printer["has paper"] = True
    assert await invoices.replay(conn) == ids
    await work(invoices)
    assert sorted(printed) == [1, 2, 3]
    assert await invoices.discarded(conn) == []


async def test_replay_some(conn: Connection, work: Work) -> None:
    first, second = await print_invoice.defer_many(conn, [print_invoice.args(1), print_invoice.args(2)])
    await work(invoices)
    printer["has paper"] = True
    assert await invoices.replay(conn, [second]) == [second]
    await work(invoices)
    assert printed == [2]
    assert [job.id for job in await invoices.discarded(conn)] == [first]


async def test_a_replayed_job_has_all_its_attempts_again(conn: Connection, work: Work) -> None:
    deferred = await print_invoice.options(max_attempts=1).defer(conn, 1)
    for _ in range(3):
        await work(invoices)
        [dead] = await invoices.discarded(conn)
        assert (dead.id, dead.attempts) == (deferred.id, 1)
        await invoices.replay(conn)


async def test_a_replay_rolled_back_changes_nothing(conn: Connection, tx_conn: Connection, work: Work) -> None:
    await print_invoice.defer(conn, 1)
    await work(invoices)
    printer["has paper"] = True
    await invoices.replay(tx_conn)
    await tx_conn.rollback()
    await work(invoices)
    assert printed == []


async def test_dead_letters_go_when_their_retention_is_over(conn: Connection, dsn: str, work: Work) -> None:
    await print_invoice.defer(conn, 1)
    await work(invoices)
    await conn.execute("update asyncq.jobs set finished_at = now() - interval '25 hours'")

    forgetful = Queue("invoices", retention=timedelta(days=1))
    worker = Worker([forgetful], dsn, WorkerOptions(cleanup=timedelta(seconds=1)))

    async def gone() -> bool:
        return await invoices.discarded(conn) == []

    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await eventually(gone, describe="the dead letter is deleted")
        worker.stop()
