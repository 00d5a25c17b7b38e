"""Many workers of one queue: they do not all run for each job, and all of them run for many."""

from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from time import perf_counter
from typing import Any

import anyio
import psycopg
import pytest

from asyncq import Queue, WorkerOptions
from asyncq.db import jobs
from asyncq.db.connection import Session
from tests.eventually import eventually
from tests.worker.inside import recording, running_worker

WORKERS = 8
RARE = timedelta(minutes=10)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each worker asked for jobs, and, as `found`, how often anybody got some."""
    counted: Counter[str] = Counter()
    claim = jobs.claim

    async def counting(*args: Any, **kwargs: Any) -> jobs.Claim:
        found = await claim(*args, **kwargs)
        counted[kwargs["worker"]] += 1
        counted["found"] += bool(found.rows)
        return found

    monkeypatch.setattr(jobs, "claim", counting)
    return counted


async def test_a_trickle_of_jobs_makes_few_claims_in_vain(
    dsn: str, conn: psycopg.AsyncConnection, claims: Counter[str]
) -> None:
    queue = Queue()
    task, ran = recording(queue)

    async with AsyncExitStack() as workers:
        for _ in range(WORKERS):
            await workers.enter_async_context(running_worker(queue, dsn, WorkerOptions(poll=RARE)))

        async def trickle(first: int, count: int) -> None:
            began = perf_counter()
            for number in range(count):
                await anyio.sleep(max(began + number * 0.01 - perf_counter(), 0.0))
                await task.defer(conn, first + number)

        # They find out who follows at once.
        await trickle(0, 100)
        claims.clear()
        await trickle(100, 300)
        await eventually(lambda: len(ran) == 400, 2, describe="all run")
        asked = sum(count for worker, count in claims.items() if worker != "found")
    assert sorted(ran) == list(range(400))
    assert asked <= 2 * 300


async def test_a_flood_of_jobs_reaches_every_worker(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    ran: list[int] = []
    running = 0
    most = 0

    @queue.task(name="task")
    async def task(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.1)
        running -= 1
        ran.append(number)

    async with AsyncExitStack() as workers:
        for _ in range(WORKERS):
            await workers.enter_async_context(running_worker(queue, dsn, WorkerOptions(poll=RARE, concurrency=10)))
        # Most of them have looked in vain often enough to hesitate.
        for number in range(100):
            await task.defer(conn, number)
            await anyio.sleep(0.01)
        await eventually(lambda: len(ran) == 100, 5, describe="the first run")
        await task.defer_many(conn, [task.args(100 + number) for number in range(1_000)])
        await eventually(lambda: most == 10 * WORKERS, 2, describe="every slot of every worker is taken")
        await eventually(lambda: len(ran) == 1_100, 10, describe="all run")
    assert sorted(ran) == list(range(1_100))


async def test_a_dense_stream_takes_less_than_a_statement_a_job(
    dsn: str, conn: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several jobs a look, and what is done is retired by the next one."""
    statements = 0
    fetch = Session.fetch

    async def counting(self: Session, *args: Any) -> Any:
        nonlocal statements
        statements += 1
        return await fetch(self, *args)

    monkeypatch.setattr(Session, "fetch", counting)
    queue = Queue()
    task, ran = recording(queue)

    async with running_worker(queue, dsn, WorkerOptions(poll=RARE)):

        async def producing(conn: psycopg.AsyncConnection) -> None:
            for number in range(400):
                await task.defer(conn, number)

        async with AsyncExitStack() as connections, anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(
                    producing,
                    await connections.enter_async_context(await psycopg.AsyncConnection.connect(dsn, autocommit=True)),
                )
        await eventually(lambda: len(ran) == 1_600, 10, describe="all run")
    assert statements < 1_600
