"""The locks by which a sender sees whether to notify: one function for each file under `sql/queries/quiet/`.

All run on the connection that listens, which holds them. What they are for is told in `asyncq.worker.quiet`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from asyncq.db.listen import Listening
from asyncq.db.statements import load

__all__ = ["Change", "ask", "hold", "pressure", "writers"]


class Change(NamedTuple):
    """What is held of a queue's lock, and what is wanted: nothing, shared or exclusive."""

    queue: str
    held: str
    wanted: str


async def hold(listening: Listening, schema: str, changes: Sequence[Change]) -> dict[str, bool]:
    """Try changes, without waiting; says of each queue whether it came about. If not, nothing is held."""
    rows = await listening.fetch(
        load("quiet/hold", schema),
        {
            "queues": [change.queue for change in changes],
            "held": [change.held for change in changes],
            "wanted": [change.wanted for change in changes],
        },
    )
    return dict(rows)


async def writers(listening: Listening, schema: str) -> set[str]:
    """Name the transactions that may yet commit jobs without a notification."""
    rows = await listening.fetch(load("quiet/writers", schema))
    return set(rows[0][0])


async def pressure(listening: Listening, schema: str) -> int:
    """Count the sessions that wait for the lock of notifications."""
    rows = await listening.fetch(load("quiet/pressure", schema))
    return rows[0][0]


async def ask(listening: Listening, schema: str, queues: Sequence[str]) -> None:
    """Ask whoever keeps these queues and cannot look to give way."""
    await listening.fetch(load("quiet/ask", schema), {"queues": list(queues)})
