"""The application of `tests.chaos.long_life`: jobs of every end, and one that looks at its own process."""

import asyncio
import gc
import os
from datetime import timedelta
from pathlib import Path

import psycopg

from asyncq import Cancel, Queue, RetryPolicy

DSN = os.environ.get("ASYNCQ_DSN", "")
work = Queue("lasting", retry=RetryPolicy(base=timedelta(seconds=0.05)), retention=timedelta(seconds=1))


@work.task
async def nothing(number: int) -> None: ...


@work.task(max_attempts=1)
async def failing(number: int) -> None:
    raise ValueError(f"number {number} " + "x" * 1_000)


@work.task
async def cancelling(number: int) -> None:
    raise Cancel("not wanted")


@work.task(priority=-100)
async def look(number: int) -> None:
    """Write down how large this process is."""
    gc.collect()
    process = Path("/proc/self")
    pages = int((process / "statm").read_text().split()[1])
    async with await psycopg.AsyncConnection.connect(DSN, autocommit=True, application_name="look") as conn:
        await conn.execute(
            "insert into public.looks (number, mib, objects, tasks, files, backends) values (%s, %s, %s, %s, %s,"
            " (select count(*) from pg_stat_activity where application_name like 'asyncq%%'))",
            (
                number,
                pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
                len(gc.get_objects()),
                len(asyncio.all_tasks()),
                len(list((process / "fd").iterdir())),
            ),
        )
