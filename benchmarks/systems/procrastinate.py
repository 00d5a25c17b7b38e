# /// script
# requires-python = ">=3.11"
# dependencies = ["procrastinate==3.10.0", "psycopg[binary]", "uvloop"]
#
# [tool.benchmarks]
# title = "procrastinate"
# store = "postgresql"
# default = { loop = "asyncio", concurrency = 1, delete_jobs = "never" }
# tuned = [
#   { loop = "uvloop", concurrency = 10, delete_jobs = "successful" },
#   { loop = "uvloop", concurrency = 100, delete_jobs = "successful" },
#   { loop = "uvloop", concurrency = 30, delete_jobs = "never" },
# ]
# ///
"""procrastinate on its psycopg connector."""

import asyncio
import time
from typing import Any

from procrastinate import App, PsycopgConnector

from benchmarks.systems.protocol import handled, serve


class Procrastinate:
    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._options = {name: settings[name] for name in ("concurrency", "delete_jobs")}
        self._app = App(connector=PsycopgConnector(conninfo=dsn))

        @self._app.task(queue="bench", name="noop")
        async def noop(number: int) -> None:  # noqa: ARG001 - jobs carry an argument
            handled.count()

        @self._app.task(queue="bench", name="timed")
        async def timed(asked_at: float) -> None:
            handled.timed(asked_at)

        self._noop, self._timed = noop, timed

    async def prepare(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async().__aenter__()

    async def enqueue(self, count: int) -> None:
        for number in range(count):
            await self._noop.defer_async(number=number)

    async def enqueue_timed(self) -> None:
        await self._timed.defer_async(asked_at=time.perf_counter())

    async def enqueue_many(self, count: int) -> None:
        # In parts, because one statement carries all arguments.
        for start in range(0, count, 1_000):
            numbers = range(start, min(start + 1_000, count))
            await self._noop.batch_defer_async(*({"number": number} for number in numbers))

    async def remaining(self) -> int:
        rows = await self._app.connector.execute_query_all_async(
            "select count(*) as jobs from procrastinate_jobs where status in ('todo', 'doing')"
        )
        return int(rows[0]["jobs"])

    async def work(self, stop: asyncio.Event) -> None:
        async with self._app.open_async():
            worker = asyncio.create_task(
                self._app.run_worker_async(queues=["bench"], install_signal_handlers=False, **self._options)
            )
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([worker, stopping], return_when=asyncio.FIRST_COMPLETED)
            if worker.done():
                worker.result()
            worker.cancel()
            await asyncio.wait([worker])


if __name__ == "__main__":
    serve(Procrastinate)
