# /// script
# requires-python = ">=3.11"
# dependencies = ["streaq==7.2.0", "uvloop"]
#
# [tool.benchmarks]
# title = "streaq"
# store = "redis"
# default = { loop = "asyncio", worker = {} }
# tuned = [
#   { loop = "uvloop", worker = { concurrency = 50 } },
#   { loop = "uvloop", worker = { concurrency = 200 } },
# ]
# ///
"""streaq on Redis streams."""

import asyncio
import time
from typing import Any

from streaq import Worker

from benchmarks.systems.protocol import handled, serve


class Streaq:
    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._worker = Worker(redis_url=dsn, handle_signals=False, **settings["worker"])

        @self._worker.task
        async def noop(number: int) -> None:  # noqa: ARG001 - jobs carry an argument
            handled.count()

        @self._worker.task
        async def timed(asked_at: float) -> None:
            handled.timed(asked_at)

        self._noop, self._timed = noop, timed

    async def prepare(self) -> None:
        pass

    async def open(self) -> None:
        await self._worker.__aenter__()

    async def enqueue(self, count: int) -> None:
        for number in range(count):
            await self._noop.enqueue(number)

    async def enqueue_timed(self) -> None:
        await self._timed.enqueue(time.perf_counter())

    async def enqueue_many(self, count: int) -> None:
        for start in range(0, count, 1_000):
            numbers = range(start, min(start + 1_000, count))
            await self._worker.enqueue_many([self._noop.enqueue(number) for number in numbers])

    async def remaining(self) -> int:
        return await self._worker.queue_size()

    async def work(self, stop: asyncio.Event) -> None:
        running = asyncio.create_task(self._worker.run_async())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        running.cancel()
        await asyncio.wait([running], timeout=5)


if __name__ == "__main__":
    serve(Streaq)
