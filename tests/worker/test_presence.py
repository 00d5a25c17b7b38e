"""Workers say that they live: while they do, while they end, and not when they have ended."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from asyncq import Queue, WorkerOptions, __version__
from asyncq.db import workers
from asyncq.db.connection import Session, address_of
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.pgbouncer import PgBouncer
from tests.sql.rows import rows, value
from tests.worker.inside import recording, running_worker

Connection = psycopg.AsyncConnection


async def present(conn: Connection) -> Sequence[tuple[Any, ...]]:
    return await rows(
        conn, "select id, queues, tasks, concurrency, release, stopping_at is not null from asyncq.workers order by id"
    )


async def test_a_worker_is_there_from_its_start_to_its_end(dsn: str, conn: Connection) -> None:
    first, second = Queue("first"), Queue("second")
    recording(second)
    going = anyio.Event()

    @first.task(name="waits", aliases=["waited"])
    async def waits() -> None:
        await going.wait()

    options = WorkerOptions(concurrency=7, grace=timedelta(seconds=60))
    async with running_worker([first, second], dsn, options) as inside:
        expected = (inside.worker.id, ["first", "second"], ["waits", "waited", "task"], 7, __version__)
        await eventually(lambda: present(conn))
        assert await present(conn) == [(*expected, False)]
        await waits.defer(conn)

        async def runs() -> bool:
            return await value(conn, "select count(*) from asyncq.jobs where state = 'running'") == 1

        await eventually(runs)
        inside.worker.stop()

        async def stopping() -> bool:
            return await present(conn) == [(*expected, True)]

        await eventually(stopping, describe="it is said at once")
        going.set()
    assert await present(conn) == []


async def test_it_says_so_again_and_again_also_when_its_row_was_deleted(
    dsn: str, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncq.worker.listen.REPORT_SECONDS", 0.1)
    async with running_worker(Queue(), dsn):
        await eventually(lambda: present(conn))
        before = await value(conn, "select seen_at from asyncq.workers")

        async def seen() -> bool:
            return await value(conn, "select seen_at from asyncq.workers") > before

        await eventually(seen)
        assert await value(conn, "select started_at from asyncq.workers") <= before
        await conn.execute("delete from asyncq.workers")
        await eventually(lambda: present(conn))


async def test_a_killed_worker_is_forgotten_by_the_first_that_comes_a_day_later(
    dsn: str, conn: Connection, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app")
    await worker.wait_ready()
    await eventually(lambda: present(conn))
    worker.kill()
    session = Session(address_of(dsn, "test"))

    async def come(name: str) -> list[str]:
        known: dict[str, Any] = {"queues": ["q"], "tasks": [], "concurrency": 1, "release": "1"}
        await workers.register(session, "asyncq", worker=name, **known)
        return [row[0] for row in await present(conn)]

    assert len(await come("next")) == 2
    await conn.execute("update asyncq.workers set seen_at = now() - interval '25 hours' where id <> 'next'")
    assert await come("second") == ["next", "second"]
    await session.close()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["polling", "listening elsewhere"])
async def test_behind_a_pooler_it_is_there_too(dsn: str, conn: Connection, tmp_path: Path, *, elsewhere: bool) -> None:
    bouncer = PgBouncer(dsn, tmp_path)
    try:
        options = WorkerOptions(listen_dsn=dsn if elsewhere else None)
        async with running_worker(Queue(), bouncer.dsn, options) as inside:
            await eventually(lambda: present(conn))
            assert [row[0] for row in await present(conn)] == [inside.worker.id]
        assert await present(conn) == []
    finally:
        bouncer.stop()


async def test_jobs_run_where_it_cannot_be_said(
    dsn: str, conn: Connection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncq.worker.listen.REPORT_SECONDS", 0.02)
    caplog.set_level(logging.INFO, "asyncq.worker")
    queue = Queue()
    task, ran = recording(queue)
    async with running_worker(queue, dsn):
        await eventually(lambda: present(conn))
        await conn.execute("alter table asyncq.workers rename to gone")
        await eventually(lambda: "not shown among the workers" in caplog.text)
        for number in range(3):
            await task.defer(conn, number)
            await eventually(lambda wanted=number: wanted in ran)
    assert caplog.text.count("not shown among the workers") == 1
    assert "trouble with the database" not in caplog.text
