# /// script
# requires-python = ">=3.12"
# dependencies = ["oban==0.7.0", "uvloop"]
#
# [tool.benchmarks]
# title = "oban"
# store = "postgresql"
# default = { loop = "uvloop", limit = 10 }
# tuned = [
#   { loop = "uvloop", limit = 100 },
#   { loop = "uvloop", limit = 500 },
#   { loop = "uvloop", limit = 1000 },
# ]
# ///
"""oban for Python, the open source one. The default is the limit of its manual, and its command runs on uvloop."""

import asyncio
import time
from typing import Any

from oban import Oban, worker
from oban.schema import install

from benchmarks.systems.protocol import handled, serve


@worker(queue="bench")
class Noop:
    async def process(self, job: Any) -> None:  # noqa: ARG002 - its signature
        handled.count()


@worker(queue="bench")
class Timed:
    async def process(self, job: Any) -> None:
        handled.timed(job.args["asked_at"])


class Benchmarked:
    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._dsn = dsn
        self._limit = settings["limit"]

    async def prepare(self) -> None:
        pool = await Oban.create_pool(self._dsn)
        await install(pool)
        await pool.close()

    async def open(self) -> None:
        self._pool = await Oban.create_pool(self._dsn)
        self._oban = Oban(pool=self._pool)

    async def enqueue(self, count: int) -> None:
        for number in range(count):
            await self._oban.enqueue(Noop.new({"number": number}))

    async def enqueue_timed(self) -> None:
        await self._oban.enqueue(Timed.new({"asked_at": time.perf_counter()}))

    async def enqueue_many(self, count: int) -> None:
        await self._oban.enqueue_many(Noop.new({"number": number}) for number in range(count))

    async def remaining(self) -> int:
        async with self._pool.connection() as conn:
            cursor = await conn.execute("select count(*) from oban_jobs where state <> 'completed'")
            row = await cursor.fetchone()
        return int(row[0])

    async def work(self, stop: asyncio.Event) -> None:
        pool = await Oban.create_pool(self._dsn)
        async with Oban(pool=pool, queues={"bench": self._limit}):
            await stop.wait()
        await pool.close()


if __name__ == "__main__":
    serve(Benchmarked)
