"""What became of jobs, of queues that keep history: one function for each file under `sql/queries/history/`.

It is written by the statements that finish, rescue, cancel and replay jobs, see `sql/parts/recorded.sql`.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from asyncq.db.connection import PlainCursor
from asyncq.db.statements import load
from asyncq.db.workers import Fetches
from asyncq.job import EndedPage, JobEvent, JobEventKind

__all__ = ["declare", "ended", "keep", "timeline"]

Connection = psycopg.AsyncConnection[Any]

LAST_ID = 2**63 - 1


async def declare(via: Fetches, schema: str, kept: Mapping[str, timedelta | None]) -> None:
    """Note how long queues keep their history."""
    seconds = [None if each is None else each.total_seconds() for each in kept.values()]
    await via.fetch(load("history/declare", schema), {"queues": list(kept), "seconds": seconds})


async def keep(via: Fetches, schema: str) -> int:
    """Have partitions made and dropped; gives how many of these changes are to be tried again."""
    rows = await via.fetch(load("history/keep", schema), {})
    return rows[0][0]


OUTLINED = {"event": "event_outline"}
"""Without errors, for a role that may not read them."""


async def timeline(connection: Connection, schema: str, job_id: int, *, errors: bool = True) -> list[JobEvent]:
    """Say what became of one job, run by run, the first first."""
    statement = load("history/timeline", schema, **({} if errors else OUTLINED))
    async with PlainCursor(connection) as cursor:
        await cursor.execute(statement, {"id": job_id}, binary=True)
        return [_event(row) for row in await cursor.fetchall()]


async def ended(
    connection: Connection,
    schema: str,
    *,
    queue: str | None = None,
    task: str | None = None,
    event: JobEventKind | None = None,
    before: int | None = None,
    limit: int,
    errors: bool = True,
) -> EndedPage:
    """List jobs that have ended, the newest first; `event` is `COMPLETED`, `DISCARDED`, `CANCELLED` or any of them."""
    params = {
        "before": LAST_ID if before is None else before,
        "queue": queue,
        "task": task,
        "event": event,
        "limit": limit,
    }
    async with PlainCursor(connection) as cursor:
        statement = load("history/ended", schema, **({} if errors else OUTLINED))
        await cursor.execute(statement, params, binary=True)
        rows = await cursor.fetchall()
    return EndedPage([_event(row[1:]) for row in rows if row[1] is not None], rows[0][0])


def _event(row: TupleRow) -> JobEvent:
    job_id, at, event, *others = row
    return JobEvent(job_id, at, JobEventKind(event), *others)
