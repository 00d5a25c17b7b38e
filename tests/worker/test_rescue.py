"""The rescue beside a server that stood still: workers that live extend their leases before it takes them for dead."""

import os
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta

import anyio
import psycopg
import pytest
from psycopg import sql

from asyncq import ExitCode, Queue, Worker, WorkerOptions
from asyncq.db import jobs
from asyncq.db.connection import Session, address_of
from asyncq.job import Lease
from asyncq.worker.rescue import Rescuer
from tests.eventually import eventually
from tests.sql.rows import ids, rows, running, value
from tests.worker.inside import recording

TOKEN = 77


@asynccontextmanager
async def rescuing(dsn: str, *, lease_seconds: float) -> AsyncGenerator[tuple[Session, int]]:
    """A rescuer at work; gives its session, and the process that serves it."""
    session = Session(address_of(dsn, "rescuer"))
    rescuer = Rescuer(session, "asyncq", lease_seconds=lease_seconds)
    [(pid,)] = await session.fetch("select pg_backend_pid()", {})
    async with anyio.create_task_group() as group:
        group.start_soon(rescuer.run)
        yield session, pid
        rescuer.end()
    await session.close()


@contextmanager
def frozen(pid: int) -> Generator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_rescue_that_was_held_up_on_its_way_lets_live_workers_go_first(
    dsn: str, conn: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncq.worker.contact.CONTACT_SECONDS", 1.0)
    dead = await running(conn, TOKEN, leased_until=sql.SQL("now()"))

    async def is_rescued(job_id: int) -> bool:
        return job_id in await ids(conn, "available")

    async with rescuing(dsn, lease_seconds=1.0) as (session, pid):
        await eventually(lambda: is_rescued(dead), describe="the first is rescued, so there is contact")
        slow = await running(conn, TOKEN, lease_seconds=1, leased_until=sql.SQL("now() + interval '1 second'"))
        with frozen(pid):
            await anyio.sleep(2.5)  # its next look is sent within a second, and a second more makes it late
        # Behind the look that was under way, on its connection.
        await session.fetch("select 1", {})
        heart = Session(address_of(dsn, "heart"))
        assert await jobs.heartbeat(heart, "asyncq", [Lease(slow, TOKEN, 1)]) == {}
        await heart.close()
        await eventually(lambda: is_rescued(slow), describe="it is rescued when its worker is silent for good")


async def test_a_burst_takes_back_what_dead_workers_left(
    dsn: str, conn: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncq.worker.contact.CONTACT_SECONDS", 0.5)
    queue = Queue("q", lease=timedelta(seconds=1))
    task, ran = recording(queue)
    for number in range(3):
        await running(conn, TOKEN, task=task.name, args=f'{{"number": {number}}}', leased_until=sql.SQL("now()"))
    alive = await running(conn, TOKEN, task=task.name)
    with anyio.fail_after(10):
        assert await Worker([queue], dsn, WorkerOptions(burst=True)).run() is ExitCode.STOPPED
        assert sorted(ran) == [0, 1, 2]
        # What is held by somebody who lives is not waited for.
        assert await Worker([queue], dsn, WorkerOptions(burst=True)).run() is ExitCode.STOPPED
    assert await ids(conn, "running") == [alive]


async def test_shortly_before_a_lease_ends_it_finds_out_whether_there_is_contact(
    dsn: str, conn: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncq.worker.contact.CONTACT_SECONDS", 0.5)
    job_id = await running(conn, TOKEN, leased_until=sql.SQL("now() + interval '2 seconds'"))
    began = await value(conn, "select clock_timestamp()")
    async with rescuing(dsn, lease_seconds=3.0) as (_, pid):
        looks: set[datetime] = set()

        async def looked_twice() -> bool:
            query = "select query_start from pg_stat_activity where pid = %s and query like 'with%%'"
            looks.update(time for (time,) in await rows(conn, query, pid))
            return len(looks) >= 2

        await eventually(looked_twice)
    ends = await value(conn, "select leased_until from asyncq.jobs where id = %s", job_id)
    assert began < sorted(looks)[1] < ends
