"""`python -m benchmarks --dsn …`: rates of asyncq beside the raw limit of the same server, in one run.

The systems take turns, several times, after a warm-up; what is printed are medians and ranges. Only ratios within one
run say something: machines differ, and the same machine differs from hour to hour.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio
import psycopg

from asyncq import Queue, Worker, WorkerOptions
from asyncq.db.migrate import migrate
from benchmarks.systems import System
from benchmarks.systems.own import Asyncq
from benchmarks.systems.raw import Raw


async def seconds(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def rates(system: System, jobs: int, singles: int) -> dict[str, float]:
    """One round of one system: jobs a second in each workload."""
    await system.prepare()
    one_by_one = singles / await seconds(lambda: system.enqueue(singles))
    await system.drain()
    bulk = jobs / await seconds(lambda: system.enqueue_many(jobs))
    drain = jobs / await seconds(system.drain)
    return {"enqueue one by one": one_by_one, "enqueue in bulk": bulk, "drain": drain}


async def latency(dsn: str, count: int) -> list[float]:
    """Milliseconds from just before the defer call to the handler's start, on an idle worker."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute("drop schema if exists bench_asyncq cascade")
        await migrate(dsn, schema="bench_asyncq")
        queue = Queue("latency", schema="bench_asyncq")
        waits: list[float] = []
        started = anyio.Event()

        @queue.task(name="bench.timed")
        async def timed(asked_at: float) -> None:
            waits.append((time.perf_counter() - asked_at) * 1e3)
            started.set()

        worker = Worker([queue], dsn, WorkerOptions(poll=timedelta(seconds=60)))
        async with anyio.create_task_group() as group:
            await group.start(worker.run)
            for _ in range(count):
                started = anyio.Event()
                await timed.defer(conn, time.perf_counter())
                await started.wait()
            worker.stop()
    return sorted(waits)


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):9,.0f}  ({min(values):,.0f} to {max(values):,.0f})"


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--dsn", default=os.environ.get("ASYNCQ_DSN"), help="a database to make schemas bench_… in")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--singles", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not options.dsn:
        parser.error("give --dsn, or set ASYNCQ_DSN")
    systems: list[System] = [Raw(options.dsn), Asyncq(options.dsn, 100), Asyncq(options.dsn, 500)]
    for system in systems:
        await rates(system, options.jobs // 10, options.singles // 10)
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(options.rounds):
        for system in systems:
            for workload, rate in (await rates(system, options.jobs, options.singles)).items():
                found.setdefault(workload, {}).setdefault(system.name, []).append(rate)
    for workload, by_system in found.items():
        print(f"{workload}, jobs/s, median of {options.rounds}")
        limit = statistics.median(by_system[Raw.name])
        for name, values in by_system.items():
            print(f"    {name:22} {shown(values)}   {statistics.median(values) / limit:.2f} of raw")
    waits = await latency(options.dsn, options.singles)
    print(f"defer call to handler start, ms: p50 {waits[len(waits) // 2]:.2f}, p99 {waits[len(waits) * 99 // 100]:.2f}")


try:
    from uvloop import run
except ImportError:
    run = asyncio.run
run(main())
