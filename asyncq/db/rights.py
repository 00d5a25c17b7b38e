"""What each kind of user of the schema must be allowed, and what a role lacks of it, as the GRANTs that mend it.

These are the roles of README's section Permissions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg

from asyncq.db.arrays import texts
from asyncq.db.connection import PlainCursor
from asyncq.db.statements import load
from asyncq.errors import ConfigurationError

__all__ = [
    "CHECKS",
    "COUNTS",
    "DEFERS",
    "EXPLAINS",
    "HURRIES",
    "LISTS",
    "MIGRATES",
    "OUTLINES",
    "PURGES",
    "RECALLS",
    "RECORDS",
    "REPLAYS",
    "WORKS",
    "Right",
    "check",
]

Connection = psycopg.AsyncConnection[Any]


class Right(NamedTuple):
    """A privilege on `database`, `schema`, or a table or function of the schema, or on some of the table's columns."""

    object: str
    privilege: str
    columns: Sequence[str] = ()


_LOOKS = Right("schema", "usage")

WORKS = (
    _LOOKS,
    Right("jobs", "select"),
    Right("jobs", "update"),
    Right("jobs", "delete"),
    Right("migrations", "select"),
    Right("workers", "select"),
    Right("workers", "insert"),
    Right("workers", "update"),
    Right("workers", "delete"),
    Right("queues", "select"),
    Right("queues", "insert"),
    Right("queues", "update"),
    Right("job_history", "insert"),
    Right("activity", "select"),
    Right("activity", "insert"),
    Right("activity", "update"),
    Right("activity", "delete"),
    Right("depths", "select"),
    Right("depths", "insert"),
    Right("depths", "update"),
    Right("depths", "delete"),
)
"""A worker. Whether its handlers put jobs in, it cannot know."""

RECORDS = (*WORKS, Right("keep_history()", "execute"))
"""A worker of queues that keep history."""

DEFERS = (_LOOKS, Right("jobs", "insert"), Right("jobs", "select", ("id", "queue", "run_at")))
EXPLAINS = (
    _LOOKS,
    Right(
        "jobs",
        "select",
        (
            "id", "queue", "task", "state", "priority", "attempts", "max_attempts", "run_at", "created_at",
            "attempted_at", "leased_until", "finished_at", "locked_by",
        ),
    ),
    Right("workers", "select"),
)  # fmt: skip
LISTS = (_LOOKS, Right("jobs", "select"))
OUTLINES = (
    _LOOKS,
    Right(
        "jobs",
        "select",
        (
            "id", "queue", "task", "state", "priority", "attempts", "max_attempts", "lease_seconds", "run_at",
            "created_at", "attempted_at", "finished_at",
        ),
    ),
)  # fmt: skip
"""An observer, who may not see arguments and errors."""

COUNTS = (
    _LOOKS,
    Right("jobs", "select", ("id", "queue", "state", "priority", "run_at", "attempted_at", "finished_at")),
)
HURRIES = (_LOOKS, Right("jobs", "select"), Right("jobs", "update"))
REPLAYS = (*HURRIES, Right("queues", "select"), Right("job_history", "insert"))
"""Who replays and cancels: both are recorded, where a queue keeps history."""

PURGES = (_LOOKS, Right("jobs", "select"), Right("jobs", "update"), Right("jobs", "delete"))
_ENDS = (
    "job_id", "at", "created_at", "run_at", "started_at", "attempt", "event", "queue", "task", "worker",
)  # fmt: skip
RECALLS = (_LOOKS, Right("job_history", "select", _ENDS))
"""An observer, who may not see errors."""

CHECKS = (_LOOKS, Right("migrations", "select"))
MIGRATES = (Right("database", "create"), _LOOKS, Right("schema", "create"), Right("migrations", "select"))


async def check(connection: Connection, schema: str, rights: Sequence[Right]) -> None:
    """Refuse a role that lacks some of these rights on what is there.

    Raises:
        ConfigurationError: with all that is to be granted, in one line.
    """
    async with PlainCursor(connection) as cursor:
        await cursor.execute(
            load("rights/lacking", schema),
            {
                "objects": [right.object for right in rights],
                "privileges": [right.privilege for right in rights],
                "columns": [texts(right.columns) for right in rights],
            },
        )
        rows = await cursor.fetchall()
    if not rows:
        return
    granted: dict[str, list[str]] = {}
    for _, on, privilege, columns in rows:
        granted.setdefault(on, []).append(f"{privilege} ({', '.join(columns)})" if columns else privilege)
    role = rows[0][0]
    grants = "; ".join(f"grant {', '.join(privileges)} on {on} to {role}" for on, privileges in granted.items())
    raise ConfigurationError(f"role {role} lacks {'a right' if len(rows) == 1 else 'rights'}: run '{grants}'")
