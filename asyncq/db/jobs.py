"""The jobs table: one function for each file under `sql/queries/jobs/`.

Others are in `asyncq.db.defer`, which puts jobs in, and in `asyncq.db.inspect`, for operators. Those that a worker runs
take its `Session`; those that a user runs take the user's connection and belong to the user's transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import TupleRow

from asyncq.db.arrays import numbers, texts
from asyncq.db.connection import PlainCursor, Session
from asyncq.db.instants import NEVER, START, Position, literal
from asyncq.db.statements import load
from asyncq.job import Job, JobState, Lease
from asyncq.outcome import Change

__all__ = [
    "Asked",
    "Claim",
    "ClaimedRow",
    "Horizon",
    "Rescue",
    "Unwritten",
    "args",
    "claim",
    "cleanup",
    "complete",
    "discarded",
    "finish",
    "heartbeat",
    "job_of",
    "release",
    "replay",
    "rescue",
    "unknown",
]

Connection = psycopg.AsyncConnection[Any]


class ClaimedRow(NamedTuple):
    """A claimed job. Its times are numbers, see `asyncq.db.instants`; large args are empty, to be read by `args`.

    Its headers, if it has any, are JSON.
    """

    id: int
    queue: str
    task: str
    args: str
    priority: int
    attempts: int
    max_attempts: int
    lease_seconds: float
    run_at: int
    created_at: int
    headers: str | None = None


class Asked(NamedTuple):
    """What a claim asks of one queue.

    Args:
        queue: its name.
        slots: how many jobs at most.
        lanes: priorities to be read, the highest first, each from a position on.
        gaps: pairs of priorities between which, both left out, unknown lanes are looked for.
        later: whether to say when its next job falls due.
    """

    queue: str
    slots: int
    lanes: Sequence[tuple[int, Position]]
    gaps: Sequence[tuple[int, int]] = ()
    later: bool = False


class Claim(NamedTuple):
    """What a claim found.

    Args:
        rows: jobs taken, the highest priority first, then the earliest, whatever their queue.
        unwritten: of the successes that came along.
        opened: lanes in the gaps: queue, priority, and the first job of a known task.
        later: seconds until the next job of a queue, of those asked that have one.
        looked_at: when it looked; no row that was due, visible and free then is left, if not all slots were filled.
        seconds: how long the server took.
    """

    rows: list[ClaimedRow]
    unwritten: "Unwritten"
    opened: list[tuple[str, int, Position | None]]
    later: dict[str, float]
    looked_at: int
    seconds: float


async def claim(
    session: Session,
    schema: str,
    *,
    asked: Sequence[Asked],
    free: int,
    tasks: Sequence[str],
    here: Sequence[int],
    worker: str,
    token: int,
    finished: Sequence[Lease] = (),
    recorded: bool = False,
) -> Claim:
    """Take due jobs, at most `free` in all, and write successes along the way; look around if something asks for it.

    `recorded`: with successes of queues that keep history being recorded there.
    """
    places = range(1, len(asked) + 1)
    look = any(each.gaps or each.later for each in asked)
    lanes = [(place, lane) for place, each in zip(places, asked, strict=True) for lane in each.lanes]
    gaps = [(place, gap) for place, each in zip(places, asked, strict=True) for gap in each.gaps]
    instead = RECORDED if recorded else _MERELY
    found = await session.fetch(
        load("jobs/look", schema, **instead) if look else load("jobs/claim", schema, **instead),
        {
            "ids": numbers([lease.id for lease in finished]),
            "tokens": numbers([lease.token for lease in finished]),
            "queues": texts([each.queue for each in asked]),
            "slots": numbers([each.slots for each in asked]),
            "asked_later": numbers([each.later for each in asked]),
            "lane_queues": numbers([place for place, _ in lanes]),
            "lane_priorities": numbers([priority for _, (priority, _) in lanes]),
            "lane_times": "{" + ",".join([literal(position.run_at) for _, (_, position) in lanes]) + "}",
            "lane_ids": numbers([position.id for _, (_, position) in lanes]),
            "gap_queues": numbers([place for place, _ in gaps]),
            "gap_tops": numbers([top for _, (top, _) in gaps]),
            "gap_bottoms": numbers([bottom for _, (_, bottom) in gaps]),
            "free": free,
            "tasks": _names(tuple(tasks)),
            "here": numbers(here),
            "worker": worker,
            "token": token,
        },
    )
    looked = found[-1]
    claim = Claim([], {}, [], {}, looked[9], looked[8])
    for row in found:
        kind = row[0]
        if kind == _TAKEN:
            claim.rows.append(ClaimedRow._make(row[1:12]))
        elif kind == _UNWRITTEN:
            claim.unwritten[row[1], row[12]] = bool(row[6])
        elif kind == _OPENED:
            claim.opened.append((row[2], row[5], None if row[1] is None else Position(row[9], row[1])))
        elif kind == _LATER:
            claim.later[row[2]] = row[8]
    return claim


_MERELY: dict[str, str] = {}
RECORDED = {"retired": "recorded"}
"""Recording costs a statement a little even where nothing is recorded, so workers without such queues do without."""


_TAKEN, _UNWRITTEN, _OPENED, _LATER = 2, 3, 4, 5
"""The kinds of rows that `claim.sql` gives."""


_names = lru_cache(maxsize=16)(texts)
"""The same tasks are asked for in each claim."""


class Horizon(NamedTuple):
    """Which transactions may still put jobs before `looked_at`, and what stands first in some lanes."""

    looked_at: int
    writers: list[str]
    over: bool
    first: list[Position | None]


async def horizon(
    session: Session,
    schema: str,
    *,
    awaited: Sequence[str],
    approved: int,
    lanes: Sequence[tuple[str, int, Position]],
    tasks: Sequence[str],
) -> Horizon:
    """Ask whether the awaited transactions are over, and for the first job of each lane up to the instant approved."""
    found = await session.fetch(
        load("jobs/horizon", schema),
        {
            "awaited": texts(awaited),
            "approved": literal(approved),
            "lane_queues": texts([queue for queue, _, _ in lanes]),
            "lane_priorities": numbers([priority for _, priority, _ in lanes]),
            "lane_times": "{" + ",".join([literal(position.run_at) for _, _, position in lanes]) + "}",
            "lane_ids": numbers([position.id for _, _, position in lanes]),
            "tasks": _names(tuple(tasks)),
        },
    )
    (_, looked_at, writers, over, _, _), *rows = sorted(found, key=lambda row: row[0] or 0)
    return Horizon(looked_at, writers, over, [None if row[5] is None else Position(row[4], row[5]) for row in rows])


async def args(session: Session, schema: str, lease: Lease, *, most: int) -> tuple[int, str | None] | None:
    """Give the length in bytes of a job's args and, if not more than `most`, the args; None: the lease is lost."""
    rows = await session.fetch(load("jobs/args", schema), {"id": lease.id, "token": lease.token, "most": most})
    return (rows[0][0], rows[0][1]) if rows else None


Unwritten = dict[tuple[int, int], bool]
"""What was not written, by id and token: whether the row is merely busy, else the lease was lost."""


async def heartbeat(
    session: Session, schema: str, leases: Sequence[Lease], *, patience: float | None = None, turn_within: float = inf
) -> Unwritten:
    """Extend leases; for `patience` and `turn_within` see `Session.fetch`."""
    rows = await session.fetch(
        load("jobs/heartbeat", schema),
        {"ids": numbers([lease.id for lease in leases]), "tokens": numbers([lease.token for lease in leases])},
        patience=patience,
        turn_within=turn_within,
    )
    return {(job_id, token): busy for job_id, token, busy in rows}


async def complete(session: Session, schema: str, leases: Sequence[Lease], *, recorded: bool = False) -> Unwritten:
    """Write successes; `recorded` as for `claim`."""
    rows = await session.fetch(
        load("jobs/complete", schema, **(RECORDED if recorded else _MERELY)),
        {"ids": numbers([lease.id for lease in leases]), "tokens": numbers([lease.token for lease in leases])},
    )
    return {(job_id, token): busy for job_id, token, busy in rows}


async def finish(session: Session, schema: str, finished: Sequence[tuple[Lease, Change]]) -> Unwritten:
    """Write all other outcomes."""
    rows = await session.fetch(
        load("jobs/finish", schema),
        {
            "ids": [lease.id for lease, _ in finished],
            "tokens": [lease.token for lease, _ in finished],
            "states": [change.state for _, change in finished],
            "delays": [change.delay for _, change in finished],
            "refunds": [change.refund for _, change in finished],
            "errors": [change.error for _, change in finished],
        },
    )
    return {(job_id, token): busy for job_id, token, busy in rows if job_id is not None}


async def release(session: Session, schema: str, tokens: Sequence[int]) -> int:
    """Give back what claims took whose answer never came; gives how many jobs."""
    rows = await session.fetch(load("jobs/release", schema), {"tokens": list(tokens)})
    return rows[0][0]


class Rescue(NamedTuple):
    """What a rescue did, in how many seconds the next lease ends, and what is to be known for the next one."""

    late: bool
    mine: bool
    rescued: Sequence[tuple[int, str, str, JobState, int, str]]
    next_seconds: float | None
    looked_at: int
    writers: Sequence[str]
    over: bool
    first: int | None
    answered_at: int


async def rescue(
    session: Session,
    schema: str,
    *,
    batch: int,
    since: int = START.run_at,
    awaited: Sequence[str] = (),
    not_after: Callable[[], int] = lambda: NEVER,
) -> Rescue:
    """Take back jobs whose lease ran out; rows of (id, queue, task, state, attempts, worker that held it).

    What comes to the server after `not_after`, on its clock, rescues nothing and says so by `late`. That is asked for
    when the statement is about to be sent.
    """
    params = {"batch": batch, "since": literal(since), "awaited": texts(awaited)}
    rows = await session.fetch(load("jobs/rescue", schema), lambda: params | {"not_after": literal(not_after())})
    rescued = [
        (job_id, queue, task, JobState(state), attempts, worker)
        for _, _, job_id, queue, task, state, attempts, worker, *_ in rows
        if job_id is not None
    ]
    late, mine, *_, next_seconds, looked_at, writers, over, first, answered_at, _ = rows[0]
    return Rescue(late, mine, rescued, next_seconds, looked_at, writers, over, first, answered_at)


async def cleanup(session: Session, schema: str, *, retention: Mapping[str, timedelta], batch: int) -> int:
    """Delete ended jobs past their queue's retention, at most `batch` of each queue; gives how many."""
    rows = await session.fetch(
        load("jobs/cleanup", schema),
        {
            "queues": list(retention),
            "retentions": [kept.total_seconds() for kept in retention.values()],
            "batch": batch,
        },
    )
    return rows[0][0]


async def unknown(
    session: Session, schema: str, *, queues: Sequence[str], tasks: Sequence[str], waited: float
) -> Mapping[str, dict[str, float]]:
    """Name the tasks, of each queue that has such, that are not among these and whose due jobs have waited so long.

    Each with the seconds that its first job has waited, the longest first.
    """
    params = {"queues": list(queues), "tasks": list(tasks), "waited": waited}
    found: dict[str, dict[str, float]] = {}
    for queue, task, seconds in await session.fetch(load("jobs/unknown", schema), params):
        found.setdefault(queue, {})[task] = seconds
    return found


async def discarded(connection: Connection, schema: str, *, queue: str, limit: int) -> list[Job]:
    """List a queue's dead letters, the latest first."""
    async with PlainCursor(connection) as cursor:
        await cursor.execute(load("jobs/discarded", schema), {"queue": queue, "limit": limit}, binary=True)
        rows = await cursor.fetchall()
    return [job_of(row) for row in rows]


def job_of(row: TupleRow) -> Job:
    """Make a job of the columns that `sql/parts/job.sql` names."""
    *head, state, attempts, most, lease, created, attempted, finished, error = row
    return Job(
        *head, state=JobState(state), attempts=attempts, max_attempts=most, lease=timedelta(seconds=lease),
        created_at=created, attempted_at=attempted, finished_at=finished, last_error=error,
    )  # fmt: skip


async def replay(connection: Connection, schema: str, *, queue: str, ids: Sequence[int] | None) -> list[int]:
    """Put dead letters back; gives their ids."""
    async with PlainCursor(connection) as cursor:
        await cursor.execute(
            load("jobs/replay", schema), {"queue": queue, "ids": None if ids is None else list(ids)}, binary=True
        )
        row = await cursor.fetchone()
    assert row is not None
    return row[0]
