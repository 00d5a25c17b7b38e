"""`python -m tests.chaos.throughput`: how much of its throughput a fleet keeps in the 30 seconds after a fault.

Jobs are offered at a steady rate, half of what the fleet can do. What is done in the seconds before is compared with
what is done in those after the fault, from the first connection that the server takes. A supervisor replaces workers
that end.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import psycopg

from asyncq.db.migrate import migrate
from tests.chaos import steady
from tests.chaos.fleet import Fleet
from tests.eventually import eventually
from tests.servers import DEFAULT_MAJOR, Postgres, Servers

WORKERS, SLOTS = 2, 50
CAPACITY_JOBS = 10_000


class Load:
    """A server, a fleet, and jobs offered to it."""

    def __init__(self, postgres: Postgres, logs: Path) -> None:
        self.postgres = postgres
        self.dsn = postgres.create_database(migrated=False)
        arguments = ("tests.chaos.steady", "--concurrency", str(SLOTS), "--grace", "2")
        self.fleet = Fleet(self.dsn, arguments, logs)
        self.offered = 0

    async def connect(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self.dsn, autocommit=True, application_name="load")

    async def connected(self) -> psycopg.AsyncConnection:
        """Wait for the server to take a connection."""
        while True:
            try:
                return await self.connect()
            except psycopg.OperationalError:
                await anyio.sleep(0.02)

    async def done(self) -> int:
        """How many of the jobs that were offered are gone."""
        async with await self.connected() as conn:
            offered = self.offered
            cursor = await conn.execute("select count(*) from asyncq.jobs where task = %s", (steady.wait.name,))
            row = await cursor.fetchone()
        assert row is not None
        return offered - row[0]

    async def capacity(self) -> float:
        """Jobs a second that the fleet can do."""
        async with await self.connect() as conn:
            self.offered += len(await steady.wait.defer_many(conn, (steady.wait.args() for _ in range(CAPACITY_JOBS))))
        before, began = await self.done(), time.monotonic()

        async def all_done() -> bool:
            return await self.done() >= self.offered

        await eventually(all_done, 120, describe="all that was offered is done")
        return (self.offered - before) / (time.monotonic() - began)

    async def offer(self, rate: float) -> None:
        """Offer jobs at a steady rate whenever there is a server, until cancelled."""
        batch = max(round(rate / 20), 1)
        while True:
            try:
                async with await self.connected() as conn:
                    due = time.monotonic()
                    while True:
                        await steady.wait.defer_many(conn, [steady.wait.args() for _ in range(batch)])
                        self.offered += batch
                        due += batch / rate
                        await anyio.sleep(max(due - time.monotonic(), 0.0))
            except psycopg.OperationalError:
                continue

    async def rate(self, seconds: float) -> float:
        """Jobs done a second from now on."""
        before, began = await self.done(), time.monotonic()
        await anyio.sleep(seconds)
        return (await self.done() - before) / (time.monotonic() - began)


async def restart(load: Load) -> None:
    await anyio.to_thread.run_sync(load.postgres.server.restart)


async def kill_backends(load: Load) -> None:
    async with await load.connect() as conn:
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'asyncq%'"
        )


async def kill_worker(load: Load) -> None:
    load.fleet.workers[0].kill()


async def exhaust_pool(load: Load) -> None:
    """A third of the slots, each with a connection of the handlers' pool or waiting for one."""
    async with await load.connect() as conn:
        await steady.hog.defer_many(conn, [steady.hog.args(20.0) for _ in range(WORKERS * SLOTS // 3)])


async def kill_again_and_again(load: Load) -> None:
    """A worker every three seconds."""
    for number in range(10):
        load.fleet.workers[number % WORKERS].kill()
        await anyio.sleep(3.0)


FAULTS: dict[str, Callable[[Load], Coroutine[Any, Any, None]]] = {
    "the server is restarted": restart,
    "all backends of the workers are killed": kill_backends,
    "a worker is killed": kill_worker,
    "handlers use up their pool": exhaust_pool,
    "a worker is killed every three seconds": kill_again_and_again,
}


async def measured(
    load: Load, rate: float, fault: Callable[[Load], Coroutine[Any, Any, None]], seconds: float
) -> tuple[float, float]:
    """The rates before and after a fault."""
    before = after = 0.0
    async with anyio.create_task_group() as group:
        group.start_soon(load.fleet.supervise)
        group.start_soon(load.offer, rate)
        await anyio.sleep(2.0)
        before = await load.rate(10.0)
        async with anyio.create_task_group() as during:
            if fault is kill_again_and_again:
                during.start_soon(fault, load)
            else:
                await fault(load)
            after = await load.rate(seconds)
        group.cancel_scope.cancel()
    return before, after


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.throughput", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="after the fault (default: 30)")
    parser.add_argument("--postgres", type=int, default=DEFAULT_MAJOR, metavar="MAJOR")
    options = parser.parse_args()
    servers = Servers()
    load = Load(servers.own(options.postgres), Path(tempfile.mkdtemp(prefix="asyncq-throughput-")))
    try:
        await migrate(load.dsn)
        load.fleet.start(WORKERS)
        for worker in load.fleet.workers:
            await worker.wait_ready()
        capacity = await load.capacity()
        sys.stdout.write(f"capacity {capacity:,.0f} jobs/s, offered {capacity / 2:,.0f}\n\n")
        sys.stdout.write("| fault | jobs/s before | after | share |\n|---|---:|---:|---:|\n")
        for name, fault in FAULTS.items():
            before, after = await measured(load, capacity / 2, fault, options.seconds)
            sys.stdout.write(f"| {name} | {before:,.0f} | {after:,.0f} | {after / before:.0%} |\n")
            sys.stdout.flush()
    finally:
        load.fleet.close()
        servers.close()
    return 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
