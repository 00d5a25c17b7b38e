# /// script
# requires-python = ">=3.11"
# dependencies = []
#
# [tool.benchmarks]
# title = "raw statements"
# store = "postgresql"
# own = true  # run from this checkout, in the driver's environment
# limit = true  # no queue, but what is physically there
# default = { loop = "uvloop", statements = 2, batch = 100 }
# tuned = [
#   { loop = "uvloop", statements = 1, batch = 100 },
#   { loop = "uvloop", statements = 1, batch = 500 },
# ]
# ///
"""What is physically there: the barest statements on asyncq's own table, without a queue around them.

A worker is one connection that claims a batch and deletes it, in two statements (default) or together with the claim of
the next batch in one (tuned). It reads on from the last batch, so that it does not walk what it has deleted. Nothing is
decoded, no handler is called, no lease is kept.
"""

import asyncio
import time
from typing import Any

import psycopg

from asyncq.db.migrate import migrate
from benchmarks.systems.protocol import handled, serve

CLAIM = """
with next as materialized (
    select ctid from bench_raw.jobs
    where state = 'available' and queue = 'bench' and priority = 0 and run_at <= now()
        and run_at >= %(mark)s::text::timestamptz
    order by priority desc, run_at, id limit %(batch)s for update skip locked
),
claimed as (
    update bench_raw.jobs set state = 'running', attempts = attempts + 1, locked_by = 'raw', lease_token = 1,
        leased_until = now() + interval '60 s', attempted_at = now()
    where ctid = any(array(select ctid from next))
    returning id, task, args::text, attempts, max_attempts, run_at
)
select * from claimed
"""

RETIRE = "delete from bench_raw.jobs where id = any(%(ids)s::text::bigint[]) and lease_token = 1"

RETIRE_AND_CLAIM = CLAIM.replace(
    "with next",
    """with retired as (
    delete from bench_raw.jobs j using unnest(%(ids)s::text::bigint[]) d (id) where j.id = d.id and j.lease_token = 1
),
next""",
    1,
)

INSERT = """
insert into bench_raw.jobs (queue, task, args) values ('bench', 'noop', %s::text::jsonb) returning id, run_at
"""


class Raw:
    """One connection, and a second one that listens for the round trip of a notification."""

    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._dsn = dsn
        self._settings = settings
        self._pause = 0.002
        self._mark = "-infinity"
        self._conn: psycopg.AsyncConnection[Any] | None = None

    async def prepare(self) -> None:
        await migrate(self._dsn, schema="bench_raw")
        async with await self._connected() as conn:
            await conn.execute("alter table bench_raw.jobs disable trigger user")

    async def open(self) -> None:
        self._conn = await self._connected()

    async def enqueue(self, count: int) -> None:
        assert self._conn is not None
        for number in range(count):
            cursor = await self._conn.execute(INSERT, (f'{{"number": {number}}}',))
            await cursor.fetchone()

    async def enqueue_timed(self) -> None:
        """Notify a listening worker: no row, only the round trip."""
        assert self._conn is not None
        await self._conn.execute("select pg_notify('bench_raw', %s)", (str(time.perf_counter()),))

    async def enqueue_many(self, count: int) -> None:
        assert self._conn is not None
        async with self._conn.cursor().copy("copy bench_raw.jobs (queue, task, args) from stdin") as copy:
            await copy.write("".join(f'bench\tnoop\t{{"number": {number}}}\n' for number in range(count)))

    async def remaining(self) -> int:
        assert self._conn is not None
        row = await (await self._conn.execute("select count(*) from bench_raw.jobs")).fetchone()
        assert row is not None
        return int(row[0])

    async def work(self, stop: asyncio.Event) -> None:
        listening = asyncio.create_task(self._listen())
        async with await self._connected() as conn:
            cursor = conn.cursor(binary=True)
            loop = self._in_one if self._settings["statements"] == 1 else self._in_two
            await loop(cursor, stop)
        listening.cancel()

    async def _in_one(self, cursor: psycopg.AsyncCursor[Any], stop: asyncio.Event) -> None:
        ids: list[int] = []
        while not stop.is_set():
            done = "{" + ",".join(map(str, ids)) + "}"
            await cursor.execute(RETIRE_AND_CLAIM, {"batch": self._settings["batch"], "mark": self._mark, "ids": done})
            ids = await self._taken(cursor, idle=not ids)

    async def _in_two(self, cursor: psycopg.AsyncCursor[Any], stop: asyncio.Event) -> None:
        while not stop.is_set():
            await cursor.execute(CLAIM, {"batch": self._settings["batch"], "mark": self._mark})
            if ids := await self._taken(cursor, idle=True):
                await cursor.execute(RETIRE, {"ids": "{" + ",".join(map(str, ids)) + "}"})

    async def _taken(self, cursor: psycopg.AsyncCursor[Any], *, idle: bool) -> list[int]:
        rows = await cursor.fetchall()
        ids = [row[0] for row in rows]
        if rows:
            self._mark = max(row[5] for row in rows).isoformat()
        handled.count(len(ids))
        if idle and not ids:
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, 0.05)
        elif ids:
            self._pause = 0.002
        return ids

    async def _listen(self) -> None:
        async with await self._connected() as conn:
            await conn.execute("listen bench_raw")
            async for notification in conn.notifies():
                handled.timed(float(notification.payload))

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, prepare_threshold=0)


if __name__ == "__main__":
    serve(Raw)
