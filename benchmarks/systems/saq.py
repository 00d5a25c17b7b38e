# /// script
# requires-python = ">=3.11"
# dependencies = ["saq[hiredis]==0.26.4", "typing_extensions", "uvloop"]
#
# [tool.benchmarks]
# title = "saq"
# store = "redis"
# default = { loop = "asyncio", concurrency = 10 }
# tuned = [
#   { loop = "uvloop", concurrency = 20 },
#   { loop = "uvloop", concurrency = 100 },
# ]
# ///
"""saq on Redis."""

import asyncio
import time
from typing import Any

from saq import Queue, Worker

from benchmarks.systems.protocol import handled, serve


async def noop(_context: Any, *, number: int) -> None:  # noqa: ARG001 - jobs carry an argument
    handled.count()


async def timed(_context: Any, *, asked_at: float) -> None:
    handled.timed(asked_at)


class Unsignalled(Worker):
    """A worker that leaves signals to the process that it is in."""

    SIGNALS = ()


class Saq:
    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._dsn = dsn
        self._concurrency = settings["concurrency"]

    async def prepare(self) -> None:
        pass

    async def open(self) -> None:
        self._queue = Queue.from_url(self._dsn, name="bench")

    async def enqueue(self, count: int) -> None:
        for number in range(count):
            await self._queue.enqueue("noop", number=number)

    async def enqueue_timed(self) -> None:
        await self._queue.enqueue("timed", asked_at=time.perf_counter())

    async def enqueue_many(self, count: int) -> None:
        # It has no bulk operation: many at once, as many as its own semaphore lets through.
        for start in range(0, count, 1_000):
            async with asyncio.TaskGroup() as group:
                for number in range(start, min(start + 1_000, count)):
                    group.create_task(self._queue.enqueue("noop", number=number))

    async def remaining(self) -> int:
        return int(await self._queue.count("incomplete"))

    async def work(self, stop: asyncio.Event) -> None:
        queue = Queue.from_url(self._dsn, name="bench")
        worker = Unsignalled(queue, functions=[noop, timed], concurrency=self._concurrency)
        running = asyncio.create_task(worker.start())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        await worker.stop()
        await running


if __name__ == "__main__":
    serve(Saq)
