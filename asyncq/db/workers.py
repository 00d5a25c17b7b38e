"""Which workers there are: one function for each file under `sql/queries/workers/`."""

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString, Protocol

from asyncq.db.statements import load

__all__ = ["Fetches", "leave", "register", "seen"]


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


async def seen(via: Fetches, schema: str, *, worker: str, stopping: bool) -> bool:
    """Note that a worker lives; False when it has to be registered, or again."""
    rows = await via.fetch(load("workers/seen", schema), {"id": worker, "stopping": stopping})
    return rows[0][0]


async def leave(via: Fetches, schema: str, *, worker: str) -> None:
    """Forget a worker that has ended."""
    await via.fetch(load("workers/leave", schema), {"id": worker})
