"""What is asked of the database to tell why a job does not run: see `asyncq.reason`."""

from dataclasses import replace
from typing import Any

import psycopg

from asyncq.db import workers
from asyncq.db.connection import PlainCursor
from asyncq.db.statements import load
from asyncq.job import JobState
from asyncq.reason import MOST_AHEAD, Explanation, JobFacts
from asyncq.reason import explain as decide

__all__ = ["explain"]


async def explain(connection: psycopg.AsyncConnection[Any], schema: str, job_id: int) -> Explanation:
    """Tell why a job does not run."""
    async with PlainCursor(connection) as cursor:
        await cursor.execute(load("jobs/explain", schema), {"id": job_id, "most": MOST_AHEAD}, binary=True)
        row = await cursor.fetchone()
        facts = None
        if row is not None:
            *rest, state, ahead, shows_errors = row
            facts = JobFacts(*rest, state=JobState(state), ahead=ahead)
            if shows_errors:
                await cursor.execute(load("jobs/last_error", schema), {"id": job_id}, binary=True)
                facts = replace(facts, error=_last_line(await cursor.fetchone()))
    return decide(job_id, facts, await workers.listed(connection, schema))


def _last_line(row: tuple[Any, ...] | None) -> str | None:
    lines = (row[0] or "").strip().splitlines() if row is not None else []
    return lines[-1] if lines else None
