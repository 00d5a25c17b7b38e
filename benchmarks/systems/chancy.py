# /// script
# requires-python = ">=3.11"
# dependencies = ["chancy==0.26.0", "psycopg[binary]", "uvloop"]
#
# [tool.benchmarks]
# title = "chancy"
# store = "postgresql"
# default = { loop = "asyncio", queue = {} }
# tuned = [
#   { loop = "uvloop", queue = { concurrency = 100, eager_polling = true, polling_interval = 1 } },
#   { loop = "uvloop", queue = { concurrency = 1000, eager_polling = true, polling_interval = 1 } },
# ]
# ///
"""chancy with its executor for asyncio in both settings: the default one runs each job in a pool of processes."""

import asyncio
import logging
import time
from typing import Any

from chancy import Chancy, Job, Queue, Worker

from benchmarks.systems.protocol import handled, serve


async def noop(number: int) -> None:  # noqa: ARG001 - jobs carry an argument
    handled.count()


async def timed(asked_at: float) -> None:
    handled.timed(asked_at)


# By the names that a worker imports them by; from_func would say `__main__` here.
NOOP = Job(func=f"{__spec__.name}.noop", queue="bench")
TIMED = Job(func=f"{__spec__.name}.timed", queue="bench")


# Its own set-up writes a line for each job.
QUIET = logging.getLogger("chancy.quiet")


class Benchmarked:
    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._dsn = dsn
        self._queue = settings["queue"]

    async def prepare(self) -> None:
        async with Chancy(self._dsn, log=QUIET) as chancy:
            await chancy.migrate()
            await chancy.declare(Queue("bench", executor=Chancy.Executor.Async, **self._queue))

    async def open(self) -> None:
        self._chancy = Chancy(self._dsn, log=QUIET)
        await self._chancy.__aenter__()

    async def enqueue(self, count: int) -> None:
        for number in range(count):
            await self._chancy.push(NOOP.with_kwargs(number=number))

    async def enqueue_timed(self) -> None:
        await self._chancy.push(TIMED.with_kwargs(asked_at=time.perf_counter()))

    async def enqueue_many(self, count: int) -> None:
        jobs = [NOOP.with_kwargs(number=number) for number in range(count)]
        async for _ in self._chancy.push_many(jobs):
            pass

    async def remaining(self) -> int:
        async with self._chancy.pool.connection() as conn:
            cursor = await conn.execute("select count(*) from chancy_jobs where state not in ('succeeded', 'failed')")
            row = await cursor.fetchone()
        return int(row[0])

    async def work(self, stop: asyncio.Event) -> None:
        async with Chancy(self._dsn, log=QUIET) as chancy, Worker(chancy, register_signal_handlers=False):
            await stop.wait()


if __name__ == "__main__":
    serve(Benchmarked)
