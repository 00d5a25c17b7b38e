"""What was done, and how much waited, over time: one function for each file under `sql/queries/activity/`.

Workers note both twice a minute, as they say that they live: see `asyncq.db.workers`.
"""

from typing import Any

import psycopg

from asyncq.db.connection import PlainCursor, Session
from asyncq.db.statements import load
from asyncq.job import Activity, Depth

__all__ = ["activity", "depths", "forget"]

Connection = psycopg.AsyncConnection[Any]


async def activity(
    connection: Connection, schema: str, *, seconds: float, step: float, queue: str | None = None
) -> list[Activity]:
    """Say how runs ended in the last `seconds`, added up over each `step` and queue; steps without any are left out."""
    async with PlainCursor(connection) as cursor:
        params = {"seconds": seconds, "step": step, "queue": queue}
        await cursor.execute(load("activity/activity", schema), params, binary=True)
        return [Activity(*row) for row in await cursor.fetchall()]


async def depths(
    connection: Connection, schema: str, *, seconds: float, step: float, queue: str | None = None
) -> list[Depth]:
    """Say how many jobs stood where in the last `seconds`, the most within each `step`, for each queue."""
    async with PlainCursor(connection) as cursor:
        params = {"seconds": seconds, "step": step, "queue": queue}
        await cursor.execute(load("activity/depths", schema), params, binary=True)
        return [Depth(*row) for row in await cursor.fetchall()]


async def forget(session: Session, schema: str, *, batch: int) -> int:
    """Delete what is older than eight days, at most `batch` of each; gives how much."""
    rows = await session.fetch(load("activity/forget", schema), {"batch": batch})
    return rows[0][0]
