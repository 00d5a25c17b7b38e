# /// script
# requires-python = ">=3.11"
# dependencies = []
#
# [tool.benchmarks]
# title = "asyncq"
# store = "postgresql"
# own = true  # run from this checkout, in the driver's environment
# default = { loop = "asyncio" }
# tuned = [
#   { loop = "uvloop", concurrency = 100 },
#   { loop = "uvloop", concurrency = 300 },
#   { loop = "uvloop", concurrency = 1000 },
#   { loop = "uvloop", concurrency = 2000 },
# ]
# ///
"""asyncq itself, by its public interface, and the adversities that the flatness workloads put into its table."""

import asyncio
import time
from typing import Any

import anyio
import psycopg

from asyncq import Queue, Worker, WorkerOptions
from asyncq.db.migrate import migrate
from benchmarks.systems.protocol import handled, serve

NAMES = ["bench", "bench_2", "bench_3", "elsewhere"]
"""The queues there are; a worker serves the first unless its settings name others."""

queues = {name: Queue(name) for name in NAMES}
bench = queues["bench"]


@bench.task(name="bench.noop")
async def noop(number: int) -> None:  # noqa: ARG001 - jobs carry an argument
    handled.count()


@bench.task(name="bench.timed")
async def timed(asked_at: float) -> None:
    handled.timed(asked_at)


INSERT = """
insert into asyncq.jobs (queue, task, args, priority, run_at)
select %(queue)s, %(task)s, jsonb_build_object('number', n), %(priority)s,
    statement_timestamp() + %(offset)s::interval + n * interval '1 microsecond'
from generate_series(1, %(count)s) n
"""

WRITER = {
    "without": """
        insert into asyncq.jobs (queue, task, args, priority, run_at, max_attempts, lease_seconds)
        values ('bench', 'bench.noop', %s::text::jsonb, 0::smallint, statement_timestamp(), 10, 60)
        returning id, run_at
        """,
    "always": """
        with job as (
            insert into asyncq.jobs (queue, task, args, priority, run_at, max_attempts, lease_seconds)
            values ('bench', 'bench.noop', %s::text::jsonb, 0::smallint, statement_timestamp(), 10, 60)
            returning id, queue, run_at
        )
        select job.id, job.run_at, pg_notify('asyncq', job.queue) from job
        """,
}
"""A writer's statement, beside the library's own."""


class Asyncq:
    """One worker in this process, and one connection that produces."""

    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._dsn = dsn
        served = [queues[name] for name in settings.get("queues", ["bench"])]
        options = {name: settings[name] for name in ("concurrency",) if name in settings}
        self._worker = Worker(served, dsn, WorkerOptions(**options))
        self._conn: psycopg.AsyncConnection[Any] | None = None

    async def prepare(self) -> None:
        await migrate(self._dsn)

    async def open(self) -> None:
        self._conn = await self._connected()

    async def enqueue(self, count: int) -> None:
        assert self._conn is not None
        for number in range(count):
            await noop.defer(self._conn, number)

    async def enqueue_timed(self) -> None:
        assert self._conn is not None
        await timed.defer(self._conn, time.perf_counter())

    async def enqueue_many(self, count: int) -> None:
        assert self._conn is not None
        await noop.defer_many(self._conn, (noop.args(number) for number in range(count)))

    async def remaining(self) -> int:
        assert self._conn is not None
        cursor = await self._conn.execute("select count(*) from asyncq.jobs")
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])

    async def work(self, stop: asyncio.Event) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._worker.run)
            await stop.wait()
            self._worker.stop()

    # ---------------------------------------------------------------------------------- only this system is asked for

    async def preload(
        self,
        count: int,
        queue: str = "bench",
        task: str = "bench.noop",
        priority: int = 0,
        offset: str = "-1 hour",
    ) -> None:
        """Put rows in past the library, by the server itself, and tell the planner of them."""
        assert self._conn is not None
        given = {"queue": queue, "task": task, "priority": priority, "offset": offset, "count": count}
        await self._conn.execute(INSERT, given)
        await self._conn.execute("analyze asyncq.jobs")

    async def write(self, variant: str, connections: int, limit: float) -> int:
        """Put jobs in one by one on several connections at once for some seconds; gives how many."""
        made = 0

        async def writer(conn: psycopg.AsyncConnection[Any], ends: float) -> None:
            nonlocal made
            while time.perf_counter() < ends:
                if variant == "library":
                    await noop.defer(conn, made)
                else:
                    cursor = await conn.execute(WRITER[variant], (f'{{"number": {made}}}',))
                    await cursor.fetchone()
                made += 1

        conns = [await self._connected() for _ in range(connections)]
        ends = time.perf_counter() + limit
        async with asyncio.TaskGroup() as group:
            for conn in conns:
                group.create_task(writer(conn, ends))
        for conn in conns:
            await conn.close()
        return made

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)


if __name__ == "__main__":
    serve(Asyncq)
