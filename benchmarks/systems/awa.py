# /// script
# requires-python = ">=3.11"
# dependencies = ["awa-pg==0.6.9", "uvloop"]
#
# [tool.benchmarks]
# title = "awa"
# store = "postgresql"
# default = { loop = "asyncio", workers = 4, start = {} }
# tuned = [
#   { loop = "uvloop", workers = 100, start = { poll_interval_ms = 50 } },
#   { loop = "uvloop", workers = 500, start = { poll_interval_ms = 50 } },
#   { loop = "uvloop", workers = 1000, start = { poll_interval_ms = 50 } },
# ]
# ///
"""awa: its core, and with it the connections and the claims, is Rust. The default is the four workers of its manual."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient

from benchmarks.systems.protocol import handled, serve


@dataclass
class Noop:
    number: int


@dataclass
class Timed:
    asked_at: float


class Awa:
    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._dsn = dsn
        self._workers = settings["workers"]
        self._options = settings["start"]

    async def prepare(self) -> None:
        client = AsyncClient(self._dsn)
        await client.migrate()
        await client.install_queue_storage()
        await client.close()

    async def open(self) -> None:
        self._client = AsyncClient(self._dsn)

    async def enqueue(self, count: int) -> None:
        for number in range(count):
            await self._client.insert(Noop(number), queue="bench")

    async def enqueue_timed(self) -> None:
        await self._client.insert(Timed(time.perf_counter()), queue="bench")

    async def enqueue_many(self, count: int) -> None:
        await self._client.enqueue_many_copy([Noop(number) for number in range(count)], queue="bench")

    async def remaining(self) -> int:
        stats = await self._client.queue_stats()
        return sum(each.total_queued + each.running for each in stats if each.queue == "bench")

    async def work(self, stop: asyncio.Event) -> None:
        client = AsyncClient(self._dsn)

        @client.task(Noop, queue="bench")
        async def noop(job: Any) -> None:  # noqa: ARG001 - its signature
            handled.count()

        @client.task(Timed, queue="bench")
        async def timed(job: Any) -> None:
            handled.timed(job.args.asked_at)

        await client.start([("bench", self._workers)], **self._options)
        await stop.wait()
        await client.shutdown(timeout_ms=5_000)
        await client.close()


if __name__ == "__main__":
    serve(Awa)
