"""What happens to the stage: each fault is injected, and lasts as long as it lasts."""

from collections import Counter
from collections.abc import Awaitable, Callable

import anyio
import psycopg

from tests.chaos.app import LEASE
from tests.chaos.stage import Stage
from tests.processes import WorkerProcess

SECONDS = LEASE.total_seconds()


async def kill(stage: Stage) -> None:
    worker(stage).kill()


async def terminate(stage: Stage) -> None:
    worker(stage).terminate()


async def freeze(stage: Stage) -> None:
    """For less, or for more, than a lease."""
    frozen = worker(stage)
    frozen.stop()
    await anyio.sleep(stage.chance.uniform(0.2, 2.0) * SECONDS)
    frozen.cont()


async def kill_backends(stage: Stage) -> None:
    async with await stage.connect() as conn:
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
            " and application_name like 'asyncq%%' and random() < %s",
            (stage.chance.uniform(0.1, 1.0),),
        )


async def restart(stage: Stage) -> None:
    await stage.note_deadlocks()
    await anyio.to_thread.run_sync(stage.postgres.server.restart)


async def crash(stage: Stage) -> None:
    await stage.note_deadlocks()
    await anyio.to_thread.run_sync(stage.postgres.server.restart, "crash")


async def outage(stage: Stage) -> None:
    """For less, or for more, than a lease."""
    await stage.note_deadlocks()
    await anyio.to_thread.run_sync(stage.postgres.server.halt)
    await anyio.sleep(stage.chance.uniform(0.2, 2.0) * SECONDS)
    await anyio.to_thread.run_sync(stage.postgres.server.resume)


async def hold_rows(stage: Stage) -> None:
    """Somebody's open transaction holds some jobs."""
    async with await stage.connect() as conn, conn.transaction():
        await conn.execute("select 1 from asyncq.jobs where random() < 0.3 for update skip locked")
        await anyio.sleep(stage.chance.uniform(0.2, 1.0) * SECONDS)


async def pin(stage: Stage) -> None:
    """Somebody's old snapshot."""
    async with await stage.connect() as conn, conn.transaction():
        await conn.execute("set transaction isolation level repeatable read")
        await conn.execute("select count(*) from asyncq.jobs")
        await anyio.sleep(stage.chance.uniform(1.0, 5.0) * SECONDS)


FAULTS: dict[Callable[[Stage], Awaitable[None]], int] = {
    kill: 5,
    terminate: 4,
    freeze: 5,
    kill_backends: 5,
    hold_rows: 4,
    pin: 2,
    restart: 2,
    crash: 1,
    outage: 1,
}
"""Each with its weight."""


def worker(stage: Stage) -> WorkerProcess:
    return stage.chance.choice(stage.fleet.workers)


async def inject(stage: Stage, seconds: float, done: Counter[str]) -> None:
    """Let faults happen for some time, several at once, and come back when the last is over."""
    # One thing at a time may be done to the server.
    server = anyio.Lock()

    async def one(fault: Callable[[Stage], Awaitable[None]]) -> None:
        try:
            if fault in (restart, crash, outage):
                async with server:
                    await fault(stage)
            else:
                await fault(stage)
        except psycopg.OperationalError:
            done[f"{fault.__name__}, in vain: the server was away"] += 1
        else:
            done[fault.__name__] += 1

    async with anyio.create_task_group() as group:
        ends = anyio.current_time() + seconds
        while anyio.current_time() < ends:
            (fault,) = stage.chance.choices(list(FAULTS), list(FAULTS.values()))
            group.start_soon(one, fault)
            await anyio.sleep(stage.chance.uniform(0.2, 1.5))
