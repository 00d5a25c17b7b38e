# /// script
# requires-python = ">=3.11"
# dependencies = ["arq==0.28.0", "hiredis", "uvloop"]
#
# [tool.benchmarks]
# title = "arq"
# store = "redis"
# default = { loop = "asyncio", worker = {} }
# tuned = [
#   { loop = "uvloop", worker = { max_jobs = 100, poll_delay = 0.01, keep_result = 0 } },
#   { loop = "uvloop", worker = { max_jobs = 1000, poll_delay = 0.01, keep_result = 0 } },
# ]
# ///
"""arq on Redis. It polls, and is not woken."""

import asyncio
import time
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

from benchmarks.systems.protocol import handled, serve


async def noop(_context: Any, number: int) -> None:  # noqa: ARG001 - jobs carry an argument
    handled.count()


async def timed(_context: Any, asked_at: float) -> None:
    handled.timed(asked_at)


class Arq:
    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._redis = RedisSettings.from_dsn(dsn)
        self._options = settings["worker"]

    async def prepare(self) -> None:
        pass

    async def open(self) -> None:
        self._pool = await create_pool(self._redis)

    async def enqueue(self, count: int) -> None:
        for number in range(count):
            await self._pool.enqueue_job("noop", number)

    async def enqueue_timed(self) -> None:
        await self._pool.enqueue_job("timed", time.perf_counter())

    async def enqueue_many(self, count: int) -> None:
        # It has no bulk operation, and each one takes a connection: some at once.
        for start in range(0, count, 50):
            async with asyncio.TaskGroup() as group:
                for number in range(start, min(start + 50, count)):
                    group.create_task(self._pool.enqueue_job("noop", number))

    async def remaining(self) -> int:
        return int(await self._pool.zcard("arq:queue"))

    async def work(self, stop: asyncio.Event) -> None:
        worker = Worker(functions=[noop, timed], redis_settings=self._redis, handle_signals=False, **self._options)
        running = asyncio.create_task(worker.async_run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        running.cancel()
        await asyncio.wait([running])


if __name__ == "__main__":
    serve(Arq)
