"""Which workers there are: one function for each file under `sql/queries/workers/`."""

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString, Protocol

import psycopg

from asyncq.db.arrays import numbers, texts
from asyncq.db.connection import PlainCursor
from asyncq.db.statements import load
from asyncq.job import Done, QueueStats
from asyncq.reason import WorkerStatus

__all__ = ["SILENT_SECONDS", "Fetches", "leave", "listed", "register", "seen"]

SILENT_SECONDS = 100.0
"""A worker that has not said for so long that it lives is taken for dead: it says so each 30."""


class Fetches(Protocol):
    """A connection of the worker's own, whichever."""

    async def fetch(self, statement: LiteralString, params: Mapping[str, Any], /) -> Sequence[tuple[Any, ...]]:
        """Run a statement and give its rows."""
        ...


async def register(
    via: Fetches,
    schema: str,
    *,
    worker: str,
    queues: Sequence[str],
    tasks: Sequence[str],
    concurrency: int,
    release: str,
) -> None:
    """Note a worker that has come, and forget those that have been silent for a day."""
    await via.fetch(
        load("workers/register", schema),
        {
            "id": worker,
            "queues": list(queues),
            "tasks": list(tasks),
            "concurrency": concurrency,
            "release": release,
        },
    )


async def seen(via: Fetches, schema: str, *, worker: str, stopping: bool, done: Sequence[Done]) -> bool:
    """Note that a worker lives, and what it has done; False when it has to be registered, or again."""
    params = {"id": worker, "stopping": stopping, "queues": None, "most": QueueStats.LIMIT, **_counted(done)}
    rows = await via.fetch(load("workers/seen", schema), params)
    return rows[0][0]


async def leave(via: Fetches, schema: str, *, worker: str, done: Sequence[Done]) -> None:
    """Forget a worker that has ended, and note what it has done."""
    await via.fetch(load("workers/leave", schema), {"id": worker, **_counted(done)})


def _counted(done: Sequence[Done]) -> dict[str, str]:
    return {
        "activity_queues": texts([each.queue for each in done]),
        "activity_tasks": texts([each.task for each in done]),
        **{name: numbers([getattr(each, name) for each in done]) for name in Done.FIGURES},
    }


async def listed(connection: psycopg.AsyncConnection[Any], schema: str) -> list[WorkerStatus]:
    """List the workers, with what they run now, the first started first."""
    async with PlainCursor(connection) as cursor:
        await cursor.execute(load("workers/listed", schema), {"silent": SILENT_SECONDS}, binary=True)
        return [WorkerStatus(*row) for row in await cursor.fetchall()]
