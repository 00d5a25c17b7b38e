"""A worker says which due jobs it leaves alone because it does not know their tasks; it takes none of them."""

import logging
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import psycopg
import pytest

from asyncq import Queue, WorkerOptions, current_job
from asyncq.db import jobs
from asyncq.worker import unknown
from tests.eventually import eventually
from tests.worker.inside import Inside, running_worker

WARNING = "jobs of tasks that this worker does not know"


class Watched:
    """What a worker found at each of its looks, and the warnings that it logged."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.looks: list[Mapping[str, dict[str, float]]] = []
        self._caplog = caplog

    @property
    def warnings(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records if WARNING in record.getMessage()]

    async def look(self, tasks: set[str]) -> None:
        """Wait for two more looks that find these tasks in queue "mail"."""
        before = len(self.looks)

        def twice() -> bool:
            return len([found for found in self.looks[before:] if found.get("mail", {}).keys() == tasks]) >= 2

        await eventually(twice, describe=f"{tasks} are found twice")


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Watched:
    """Workers that look several times a second."""
    monkeypatch.setattr(unknown, "WAITED_SECONDS", 0.2)
    monkeypatch.setattr(unknown, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(unknown, "EVERY_FACTOR", 0.0)
    caplog.set_level(logging.INFO, "asyncq")
    watched, look = Watched(caplog), jobs.unknown

    async def and_note(*args: Any, **kwargs: Any) -> Mapping[str, dict[str, float]]:
        found = await look(*args, **kwargs)
        watched.looks.append(found)
        return found

    monkeypatch.setattr(jobs, "unknown", and_note)
    return watched


def old_worker(dsn: str) -> AbstractAsyncContextManager[Inside]:
    """One that knows task "a" only."""
    queue = Queue("mail")

    @queue.task(name="a")
    async def a() -> None: ...

    return running_worker(queue, dsn)


async def test_what_was_there_at_the_start_is_told_of_by_the_first_look(
    dsn: str, conn: psycopg.AsyncConnection, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown, "EVERY_SECONDS", 3600.0)
    await conn.execute("select asyncq.defer('b', '{}', 'mail')")
    async with old_worker(dsn):
        await eventually(lambda: watched.warnings)
    assert len(watched.looks) == 1


async def test_jobs_that_an_old_worker_does_not_know_are_told_of_and_wait_for_a_new_one(
    dsn: str, conn: psycopg.AsyncConnection, watched: Watched
) -> None:
    queue = Queue("mail")
    attempts: list[int] = []

    @queue.task(name="b")
    async def b() -> None:
        attempts.append(current_job().attempts)

    await b.defer_many(conn, [b.args() for _ in range(100)])
    async with old_worker(dsn):
        await watched.look({"b"})
        cursor = await conn.execute("select count(*), max(attempts), max(state) from asyncq.jobs")
        assert await cursor.fetchone() == (100, 0, "available")
        async with running_worker(queue, dsn):
            await eventually(lambda: len(attempts) == 100, describe="the new worker runs them all")
        assert set(attempts) == {1}
        await watched.look(set())
    (warning,) = watched.warnings
    assert warning.startswith(
        f"queue mail: {WARNING} have waited for 0 s: b; they wait for a worker whose code has them"
    )


async def test_it_is_told_again_only_when_the_names_change(
    dsn: str, conn: psycopg.AsyncConnection, watched: Watched
) -> None:
    def last(names: str) -> re.Match[str] | None:
        return re.fullmatch(rf"queue mail: {WARNING} have waited for 72\d\d s: {names}; they .*", watched.warnings[-1])

    await conn.execute("insert into asyncq.jobs (queue, task, run_at) values ('mail', 'b', now() - interval '2 hours')")
    async with old_worker(dsn):
        await watched.look({"b"})
        assert last("b")
        assert len(watched.warnings) == 1
        await conn.execute("insert into asyncq.jobs (queue, task, priority) values ('mail', 'c', 5), ('mail', 'b', 5)")
        await watched.look({"b", "c"})
        assert last("b, c")
        assert len(watched.warnings) == 2
        await conn.execute("delete from asyncq.jobs where task = 'b'")
        await watched.look({"c"})
        assert len(watched.warnings) == 3


async def test_it_is_silent_about_what_waits_as_it_should(
    dsn: str, conn: psycopg.AsyncConnection, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known, not due, over, or due since a moment ago as in a deploy, or lies in a queue that others serve."""
    queue, gate = Queue("mail"), anyio.Event()

    @queue.task(name="a")
    async def a() -> None:
        await gate.wait()

    await conn.execute(
        """insert into asyncq.jobs (queue, task, run_at, state, finished_at) values
        ('mail', 'a', now() - interval '1 hour', 'available', null),
        ('mail', 'a', now() - interval '1 hour', 'available', null),
        ('mail', 'later', now() + interval '1 hour', 'available', null),
        ('mail', 'fresh', now(), 'available', null),
        ('mail', 'over', now() - interval '1 hour', 'discarded', now()),
        ('elsewhere', 'b', now() - interval '1 hour', 'available', null)"""
    )
    looks = jobs.unknown

    async def look(*args: Any, waited: float, **kwargs: Any) -> Mapping[str, dict[str, float]]:
        assert waited == 0.2
        return await looks(*args, waited=60.0, **kwargs)

    monkeypatch.setattr(jobs, "unknown", look)
    async with running_worker(queue, dsn, WorkerOptions(concurrency=1)):
        await watched.look(set())
        gate.set()
    assert watched.warnings == []


async def test_many_names_are_cut_short(dsn: str, conn: psycopg.AsyncConnection, watched: Watched) -> None:
    await conn.execute(
        "insert into asyncq.jobs (queue, task, run_at)"
        " select 'mail', 'task ' || n, now() - interval '1 hour' from generate_series(1, 25) n"
    )
    async with old_worker(dsn):
        await watched.look({f"task {number}" for number in range(1, 26)})
    (warning,) = watched.warnings
    assert warning.count("task ") == unknown.MOST_NAMES
    assert " ...; they wait" in warning


async def test_looks_that_fail_end_nothing(
    dsn: str, conn: psycopg.AsyncConnection, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, failed = jobs.unknown, [0]

    async def look(*args: Any, **kwargs: Any) -> Mapping[str, dict[str, float]]:
        failed[0] += 1
        if failed[0] <= 2:
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return await looks(*args, **kwargs)

    monkeypatch.setattr(jobs, "unknown", look)
    await conn.execute("insert into asyncq.jobs (queue, task, run_at) values ('mail', 'b', now() - interval '75 s')")
    async with old_worker(dsn) as inside:
        await watched.look({"b"})
        assert inside.code is None
    assert len(watched.warnings) == 1


async def test_a_row_due_since_ever_does_not_hide_the_others(
    dsn: str, conn: psycopg.AsyncConnection, watched: Watched
) -> None:
    await conn.execute(
        "insert into asyncq.jobs (queue, task, run_at) values ('mail', 'ever', '-infinity'),"
        " ('mail', 'ancient', '4713-01-01 00:00+00 BC'), ('mail', 'late', now() - interval '1 hour')"
    )
    async with old_worker(dsn):
        await watched.look({"ever", "ancient", "late"})
