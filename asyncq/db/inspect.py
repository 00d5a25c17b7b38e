"""What an operator asks of the jobs table, and does to it: one function for each of these files in `sql/queries/jobs/`.

All take the user's connection and belong to the user's transaction. What reads does so in the order of an index and no
further than a limit, so that it costs the same however many jobs there are.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
from psycopg.rows import TupleRow

from asyncq.db.arrays import numbers, texts
from asyncq.db.connection import PlainCursor
from asyncq.db.jobs import job_of
from asyncq.db.statements import load
from asyncq.job import Job, JobPage, JobState, QueueStats

__all__ = ["cancel", "ended", "outline", "outlines", "page", "purge", "run_now", "show", "stats"]

Connection = psycopg.AsyncConnection[Any]

PURGED_AT_ONCE = 10_000
"""How many rows one statement deletes."""

LAST_ID = 2**63 - 1


async def _rows(connection: Connection, statement: LiteralString, **params: object) -> list[TupleRow]:
    async with PlainCursor(connection) as cursor:
        await cursor.execute(statement, params, binary=True)
        return await cursor.fetchall()


def _outline_of(row: TupleRow) -> Job:
    """Make a job of the columns that `sql/parts/outline.sql` names."""
    return job_of((*row[:3], "{}", *row[3:], None))


async def stats(connection: Connection, schema: str, *, queues: Sequence[str] | None) -> list[QueueStats]:
    """Count the jobs of these queues, or of all that have some, by queue."""
    rows = await _rows(
        connection,
        load("jobs/stats", schema),
        queues=None if queues is None else texts(queues),
        most=QueueStats.LIMIT,
    )
    return [QueueStats(*row) for row in rows]


async def page(
    connection: Connection,
    schema: str,
    *,
    queue: str,
    limit: int,
    before: int | None = None,
    state: JobState | None = None,
    task: str | None = None,
    older_than: timedelta | None = None,
    args: str | None = None,
) -> JobPage:
    """Give a page of a queue's jobs, the newest first; `args` is JSON that theirs contain."""
    sought = _sought(queue=queue, limit=limit, before=before, state=state, task=task, older_than=older_than)
    rows = await _rows(
        connection,
        load("jobs/page", schema),
        args=args,
        **sought,
    )
    return _page([job_of(row[1:]) for row in rows if row[1] is not None], rows[0][0], limit)


async def outlines(
    connection: Connection,
    schema: str,
    *,
    queue: str,
    limit: int,
    before: int | None = None,
    state: JobState | None = None,
    task: str | None = None,
    older_than: timedelta | None = None,
) -> JobPage:
    """Give a page of jobs as if they had neither arguments nor errors, to a role that may not read them."""
    sought = _sought(queue=queue, limit=limit, before=before, state=state, task=task, older_than=older_than)
    rows = await _rows(
        connection,
        load("jobs/outlines", schema),
        **sought,
    )
    return _page([_outline_of(row[1:]) for row in rows if row[1] is not None], rows[0][0], limit)


def _sought(
    *,
    queue: str,
    limit: int,
    before: int | None,
    state: JobState | None,
    task: str | None,
    older_than: timedelta | None,
) -> dict[str, object]:
    return {
        "queue": queue,
        "limit": limit,
        "before": LAST_ID if before is None else before,
        "state": state,
        "running": state is JobState.RUNNING,
        "task": task,
        "age": None if older_than is None else older_than.total_seconds(),
    }


def _page(jobs: list[Job], reached: int | None, limit: int) -> JobPage:
    return JobPage(jobs, jobs[-1].id if len(jobs) == limit else reached)


async def show(connection: Connection, schema: str, *, ids: Sequence[int]) -> list[Job]:
    """Read jobs by their ids, whatever their queue; those that are gone are left out."""
    return [job_of(row) for row in await _rows(connection, load("jobs/show", schema), ids=numbers(ids))]


async def outline(connection: Connection, schema: str, *, ids: Sequence[int]) -> list[Job]:
    """Read jobs as if they had neither arguments nor errors, for a role that may not read them."""
    return [_outline_of(row) for row in await _rows(connection, load("jobs/outline", schema), ids=numbers(ids))]


async def run_now(connection: Connection, schema: str, *, queue: str, ids: Sequence[int]) -> list[int]:
    """Make jobs due that wait for a later time; gives their ids."""
    [(changed, _)] = await _rows(connection, load("jobs/run_now", schema), queue=queue, ids=numbers(ids))
    return changed


async def cancel(connection: Connection, schema: str, *, queue: str, ids: Sequence[int], reason: str) -> list[int]:
    """Cancel jobs that wait; gives their ids."""
    [(changed,)] = await _rows(connection, load("jobs/cancel", schema), queue=queue, ids=numbers(ids), reason=reason)
    return changed


async def purge(
    connection: Connection, schema: str, *, queue: str, state: JobState | None, older_than: timedelta
) -> int:
    """Delete jobs that ended without success; gives how many."""
    statement, age, deleted = load("jobs/purge", schema), older_than.total_seconds(), 0
    while True:
        [(count,)] = await _rows(connection, statement, queue=queue, state=state, age=age, batch=PURGED_AT_ONCE)
        deleted += count
        if count < PURGED_AT_ONCE:
            return deleted


async def ended(
    connection: Connection, schema: str, *, queue: str, state: JobState | None, older_than: timedelta
) -> int:
    """Count what `purge` would delete, up to 100,000."""
    age = older_than.total_seconds()
    [(count,)] = await _rows(connection, load("jobs/ended", schema), queue=queue, state=state, age=age)
    return count
