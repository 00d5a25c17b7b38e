"""The jobs table: one function for each file under `sql/queries/jobs/`; `asyncq.db.defer` has those that put jobs in.

Those that a worker runs take its `Session`; those that a user runs take the user's connection and belong to the
user's transaction.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from asyncq.db.connection import PlainCursor, Session
from asyncq.db.statements import load
from asyncq.job import Job, JobState, Lease
from asyncq.outcome import Change

__all__ = [
    "Claim",
    "ClaimedRow",
    "Rescue",
    "Unwritten",
    "claim",
    "cleanup",
    "complete",
    "discarded",
    "due",
    "finish",
    "heartbeat",
    "release",
    "replay",
    "rescue",
]

Connection = psycopg.AsyncConnection[Any]


class ClaimedRow(NamedTuple):
    """A claimed job, as `claim.sql` gives it."""

    looked_at: datetime
    id: int
    queue: str
    task: str
    args: str
    priority: int
    attempts: int
    max_attempts: int
    lease_seconds: float
    run_at: datetime
    created_at: datetime


class Claim(NamedTuple):
    """What a claim found, and the database's time at which it looked."""

    rows: Sequence[ClaimedRow]
    looked_at: datetime


async def claim(
    session: Session,
    schema: str,
    *,
    slots: Mapping[str, int],
    free: int,
    tasks: Sequence[str],
    here: Sequence[int],
    worker: str,
    token: int,
) -> Claim:
    """Take due jobs: at most `slots[queue]` of each queue, in that order, and at most `free` in all."""
    rows = await session.fetch(
        load("jobs/claim", schema),
        {
            "queues": list(slots),
            "slots": list(slots.values()),
            "free": free,
            "tasks": list(tasks),
            "here": list(here),
            "worker": worker,
            "token": token,
        },
    )
    looked_at: datetime = rows[0][0]
    return Claim([ClaimedRow._make(row) for row in rows] if rows[0][1] is not None else [], looked_at)


async def due(session: Session, schema: str, *, queues: Sequence[str], looked_at: datetime) -> dict[str, float]:
    """Give the seconds until the next job of each queue, of those that have one scheduled."""
    rows = await session.fetch(load("jobs/due", schema), {"queues": list(queues), "looked_at": looked_at})
    return dict(rows)


Unwritten = dict[tuple[int, int], bool]
"""What was not written, by id and token: whether the row is merely busy, else the lease was lost."""


async def heartbeat(session: Session, schema: str, leases: Sequence[Lease]) -> Unwritten:
    """Extend leases."""
    rows = await session.fetch(
        load("jobs/heartbeat", schema),
        {"ids": [lease.id for lease in leases], "tokens": [lease.token for lease in leases]},
    )
    return {(job_id, token): busy for job_id, token, busy in rows}


async def complete(session: Session, schema: str, leases: Sequence[Lease]) -> Unwritten:
    """Write successes."""
    rows = await session.fetch(
        load("jobs/complete", schema),
        {"ids": [lease.id for lease in leases], "tokens": [lease.token for lease in leases]},
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
    """What a rescue did, and in how many seconds the next lease ends, if any is held."""

    mine: bool
    rescued: Sequence[tuple[int, str, str, JobState, int, str]]
    next_seconds: float | None


async def rescue(session: Session, schema: str, *, batch: int) -> Rescue:
    """Take back jobs whose lease ran out; rows of (id, queue, task, state, attempts, worker that held it)."""
    rows = await session.fetch(load("jobs/rescue", schema), {"batch": batch})
    rescued = [
        (job_id, queue, task, JobState(state), attempts, worker)
        for _, job_id, queue, task, state, attempts, worker, *_ in rows
        if job_id is not None
    ]
    return Rescue(rows[0][0], rescued, rows[0][7])


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


async def discarded(connection: Connection, schema: str, *, queue: str, limit: int) -> list[Job]:
    """List a queue's dead letters, the latest first."""
    async with PlainCursor(connection) as cursor:
        await cursor.execute(load("jobs/discarded", schema), {"queue": queue, "limit": limit}, binary=True)
        rows = await cursor.fetchall()
    return [
        Job(*head, state=JobState(state), attempts=attempts, max_attempts=limit_, lease=timedelta(seconds=lease),
            created_at=created, attempted_at=attempted, finished_at=finished, last_error=error)
        for *head, state, attempts, limit_, lease, created, attempted, finished, error in rows
    ]  # fmt: skip


async def replay(connection: Connection, schema: str, *, queue: str, ids: Sequence[int] | None) -> list[int]:
    """Put dead letters back; gives their ids."""
    async with PlainCursor(connection) as cursor:
        await cursor.execute(
            load("jobs/replay", schema), {"queue": queue, "ids": None if ids is None else list(ids)}, binary=True
        )
        row = await cursor.fetchone()
    assert row is not None
    return row[0]
