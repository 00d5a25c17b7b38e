# /// script
# requires-python = ">=3.11"
# dependencies = ["pgqueuer[asyncpg]==1.6.0", "uvloop"]
#
# [tool.benchmarks]
# title = "pgqueuer"
# store = "postgresql"
# default = { loop = "uvloop", batch_size = 10 }
# tuned = [
#   { loop = "uvloop", batch_size = 200 },
#   { loop = "uvloop", batch_size = 500 },
#   { loop = "uvloop", batch_size = 1000 },
# ]
# ///
"""pgqueuer on asyncpg, one connection, its tables as durable as it makes them by default."""

import asyncio
import time
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.systems.protocol import handled, serve


class Pgqueuer:
    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._dsn = dsn
        self._batch_size = settings["batch_size"]

    async def prepare(self) -> None:
        conn = await asyncpg.connect(self._dsn)
        await Queries(AsyncpgDriver(conn)).install()
        await conn.close()

    async def open(self) -> None:
        self._conn = await asyncpg.connect(self._dsn)
        self._queries = Queries(AsyncpgDriver(self._conn))

    async def enqueue(self, count: int) -> None:
        for number in range(count):
            await self._queries.enqueue("noop", b"%d" % number)

    async def enqueue_timed(self) -> None:
        await self._queries.enqueue("timed", str(time.perf_counter()).encode())

    async def enqueue_many(self, count: int) -> None:
        await self._queries.enqueue(["noop"] * count, [b"%d" % number for number in range(count)], [0] * count)

    async def remaining(self) -> int:
        return int(await self._conn.fetchval("select count(*) from pgqueuer"))

    async def work(self, stop: asyncio.Event) -> None:
        conn = await asyncpg.connect(self._dsn)
        worker = PgQueuer(AsyncpgDriver(conn))

        @worker.entrypoint("noop")
        async def noop(job: Job) -> None:  # noqa: ARG001 - its signature
            handled.count()

        @worker.entrypoint("timed")
        async def timed(job: Job) -> None:
            handled.timed(float(job.payload or b""))

        running = asyncio.create_task(worker.run(batch_size=self._batch_size))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        worker.shutdown.set()
        await running
        await conn.close()


if __name__ == "__main__":
    serve(Pgqueuer)
