"""A worker that was told to stop ends in time, whatever holds it up: a blocked event loop, a database that is away."""

import asyncio
import math
import os
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from asyncq import ExitCode, Queue, Task, WorkerOptions
from asyncq.cli.deadline import END_SECONDS, Deadline
from tests.blackhole import BlackHole
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.processes import WorkerProcess
from tests.truth import TruthLog
from tests.worker import app
from tests.worker.inside import running_worker

GRACE = 1


class Held:
    """Worker processes that hold one job each, and how they should end."""

    def __init__(self, start_worker: StartWorker, truth: TruthLog) -> None:
        self._start_worker = start_worker
        self._truth = truth
        self.options: tuple[str, ...] = ()
        self.expected: dict[WorkerProcess, ExitCode] = {}
        self.jobs: dict[WorkerProcess, int] = {}

    async def start(
        self,
        conn: psycopg.AsyncConnection,
        task: Task[..., Any],
        *args: object,
        ends_with: ExitCode,
        dsn: str,
        paths: Sequence[Path] = (),
    ) -> None:
        worker = self._start_worker("tests.worker.app", "--concurrency", "1", *self.options, paths=paths, dsn=dsn)
        await worker.wait_ready()
        # The event loop is left and entered again.
        await app.exits_in_a_child.defer(conn)
        await worker.wait_for("the worker goes on")
        taking = (await app.takes_a_signal.defer(conn)).id

        async def taken() -> bool:
            return await self._truth.rows(taking, "end") != []

        await eventually(taken, describe="a handler has handled a signal of its own")
        job = (await task.defer(conn, *args)).id

        async def runs() -> bool:
            return await self._truth.rows(job, "start") != []

        await eventually(runs, describe=f"{task.name} runs")
        self.expected[worker] = ends_with
        self.jobs[worker] = job

    def send(self, number: signal.Signals) -> None:
        for worker in self.expected:
            worker.send(number)

    async def end_within(self, seconds: float) -> None:
        async with anyio.create_task_group() as group:
            for worker in self.expected:
                group.start_soon(worker.wait, seconds)
        assert {worker.name: worker.returncode for worker in self.expected} == {
            worker.name: code for worker, code in self.expected.items()
        }
        for worker, code in self.expected.items():
            if code is ExitCode.STALLED:
                assert f"blocked by job {self.jobs[worker]} (tests.worker.app." in worker.stderr
            else:
                assert f"run again when their leases end: {self.jobs[worker]}" in worker.stderr


@pytest.fixture
def held(start_worker: StartWorker, truth: TruthLog) -> Held:
    return Held(start_worker, truth)


@pytest.fixture
def no_uvloop(tmp_path: Path) -> list[Path]:
    """Where a worker looks for modules that is not to find uvloop."""
    directory = tmp_path / "no_uvloop"
    directory.mkdir()
    (directory / "uvloop.py").write_text("raise ImportError\n")
    return [directory]


@pytest.mark.parametrize("signals", [pytest.param(1, marks=pytest.mark.once), 2])
async def test_a_worker_that_is_held_up_ends_in_time_and_names_the_job(
    conn: psycopg.AsyncConnection, dsn: str, held: Held, no_uvloop: list[Path], signals: int
) -> None:
    """Blocked in Python and in C, in both event loops; and with a database that has fallen silent."""
    held.options = ("--stall-leases", "1000", "--grace", str(GRACE if signals == 1 else 600))
    for paths in ([], no_uvloop):
        await held.start(conn, app.blocking, 3600.0, ends_with=ExitCode.STALLED, dsn=dsn, paths=paths)
        await held.start(conn, app.blocking_in_c, ends_with=ExitCode.STALLED, dsn=dsn, paths=paths)
    async with BlackHole(dsn) as silent:
        await held.start(conn, app.lasting_patiently, 3600.0, ends_with=ExitCode.FAILED, dsn=silent.dsn)
        silent.swallow()
        held.send(signal.SIGTERM)
        if signals > 1:
            held.send(signal.SIGINT)
        await held.end_within(GRACE + 15 if signals == 1 else 8)


async def test_what_is_left_until_the_deadline_is_known() -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR2, lambda: None)
    deadline = Deadline(loop, [signal.SIGUSR2], grace=1e6, named=lambda _: None)
    deadline.listen()
    assert deadline.left() == math.inf
    os.kill(os.getpid(), signal.SIGUSR2)
    await eventually(lambda: 1e6 < deadline.left() < 1e6 + END_SECONDS)
    loop.remove_signal_handler(signal.SIGUSR2)


async def test_the_grace_period_begins_when_the_stop_was_wanted(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    events: list[str] = []

    @queue.task(name="waits")
    async def waits() -> None:
        events.append("start")
        try:
            await anyio.sleep_forever()
        finally:
            events.append("end")

    async with running_worker(queue, dsn, WorkerOptions(grace=timedelta(seconds=600))) as inside:
        await waits.defer(conn)
        await eventually(lambda: events == ["start"], describe="it runs")
        inside.worker.stop(late=600.0)
        await eventually(lambda: inside.code is not None, describe="it ends")
    assert events == ["start", "end"]
    assert inside.code is ExitCode.STOPPED
