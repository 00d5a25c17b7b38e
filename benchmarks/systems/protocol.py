"""How the driver talks to a system's process: a request is a line of JSON, and so is its answer.

Only the standard library is used here, because this is imported in every system's own environment. A process is either
the producer of a stage or one of its workers; which of the two it is shows in what it is asked for.

Handlers report to `handled`, a table of counters in memory that the driver and all processes of a stage share. It costs
a handler a tenth of a microsecond, and it tells across processes and without asking the database how far things are.
"""

import argparse
import asyncio
import json
import mmap
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

SLOTS = 16
"""Processes that can count in one stage."""

LINE_BYTES = 64 * 1024 * 1024
"""The longest line; waiting times of many jobs come in one."""


class Handled:
    """How many handlers ran in each process, and how long jobs waited for theirs in this one."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._slots = memoryview(bytearray(8 * SLOTS)).cast("q")
        self._slot = 0

    def open(self, path: Path, slot: int) -> None:
        """Share the counters of a file of `SLOTS` numbers, and count in one of them."""
        with path.open("r+b") as file:
            self._slots = memoryview(mmap.mmap(file.fileno(), 8 * SLOTS)).cast("q")
        self._slot = slot

    def count(self, jobs: int = 1) -> None:
        """Note that a handler ran."""
        self._slots[self._slot] += jobs

    def timed(self, asked_at: float) -> None:
        """Note that a handler ran, and how long after `asked_at` it began."""
        self.waits.append((time.perf_counter() - asked_at) * 1e3)
        self.count()

    def total(self) -> int:
        """All processes' handlers."""
        return sum(self._slots)

    def clear(self) -> None:
        for slot in range(SLOTS):
            self._slots[slot] = 0


handled = Handled()


class System(Protocol):
    """What a workload can ask of a system.

    A system is made of the server's address and the settings that it is measured with. Its handlers call
    `handled.count()`, or `handled.timed(…)` for the jobs of `enqueue_timed`, and nothing else.
    """

    def __init__(self, dsn: str, settings: dict[str, Any]) -> None: ...

    async def prepare(self) -> None:
        """Install into an empty database."""
        ...

    async def open(self) -> None:
        """Connect for producing. What follows finds warm connections."""
        ...

    async def enqueue(self, count: int) -> None:
        """Put jobs in one by one, each with its own commit."""
        ...

    async def enqueue_timed(self) -> None:
        """Put one job in that carries the present time of `time.perf_counter`."""
        ...

    async def enqueue_many(self, count: int) -> None:
        """Put jobs in by the fastest way that the system documents."""
        ...

    async def remaining(self) -> int:
        """Count the jobs that are not durably finished."""
        ...

    async def work(self, stop: asyncio.Event) -> None:
        """Run a worker until `stop` is set."""
        ...


class Process:
    """One process of a stage: carries out requests, one after the other, on its system."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._stop = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    async def prepare(self) -> dict[str, Any]:
        await self._system.prepare()
        return {}

    async def open(self) -> dict[str, Any]:
        await self._system.open()
        return {}

    async def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Do something that only this system knows how to do."""
        return {"result": await getattr(self._system, operation)(**arguments)}

    async def enqueue(self, count: int) -> dict[str, Any]:
        return {"seconds": await seconds(lambda: self._system.enqueue(count))}

    async def enqueue_many(self, count: int) -> dict[str, Any]:
        return {"seconds": await seconds(lambda: self._system.enqueue_many(count))}

    async def remaining(self) -> dict[str, Any]:
        return {"jobs": await self._system.remaining()}

    async def settle(self, limit: float) -> dict[str, Any]:
        """Wait until nothing remains."""
        async with asyncio.timeout(limit):
            while await self._system.remaining():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.002)
        return {}

    async def ping(self, count: int, pause: float) -> dict[str, Any]:
        """Put timed jobs in, each when the worker has been idle for a moment since the one before.

        Gives how long each call took, its commit included.
        """
        calls: list[float] = []
        for _ in range(count):
            expected = handled.total() + 1
            called = time.perf_counter()
            await self._system.enqueue_timed()
            calls.append((time.perf_counter() - called) * 1e3)
            async with asyncio.timeout(30):
                while handled.total() < expected:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.001)
            await asyncio.sleep(pause)
        return {"calls": calls}

    async def feed(self, backlog: int, batch: int, limit: float, made: int) -> dict[str, Any]:
        """Keep the backlog at a level for some seconds, of which `made` jobs are there already; gives all made."""
        ends = time.perf_counter() + limit
        while time.perf_counter() < ends:
            if made - handled.total() <= backlog - batch:
                await self._system.enqueue_many(batch)
                made += batch
            else:
                await asyncio.sleep(0.002)
        return {"made": made}

    async def work(self) -> dict[str, Any]:
        self._working = asyncio.create_task(self._work())
        return {}

    async def stop(self) -> dict[str, Any]:
        """End the worker, and give the waiting times of the timed jobs that it ran."""
        self._stop.set()
        if self._working is not None:
            await self._working
        waits, handled.waits = handled.waits, []
        return {"waits": waits}

    async def _work(self) -> None:
        try:
            await self._system.work(self._stop)
            if not self._stop.is_set():
                raise RuntimeError("the worker ended by itself")
        except BaseException:  # noqa: BLE001 - a cancellation would be a failure too
            # Nobody waits for this task while the worker works: the driver learns it from the end of the process.
            traceback.print_exc()
            os._exit(70)


async def seconds(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def answer_all(process: Process, answers: Any) -> None:
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        try:
            answer = await getattr(process, request.pop("do"))(**request)
        except Exception:  # noqa: BLE001 - whatever it was, the driver reports it
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def serve(make: Callable[[str, dict[str, Any]], System]) -> None:
    """Answer the driver until it closes our standard input. The last line of every system's module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--counters", type=Path, required=True)
    parser.add_argument("--slot", type=int, required=True)
    parser.add_argument("--settings", type=json.loads, required=True)
    options = parser.parse_args()
    handled.open(options.counters, options.slot)
    # What a system prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    async def main() -> None:
        await answer_all(Process(make(options.dsn, options.settings)), answers)

    runner = asyncio.Runner(loop_factory=loop_factory(options.settings["loop"]))
    with runner:
        runner.run(main())
    # Threads that a system left behind are not waited for.
    os._exit(0)


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name == "asyncio":
        return None
    import uvloop  # noqa: PLC0415 - not every environment has it

    return uvloop.new_event_loop
