"""The handlers' own log of what really ran.

Whether a job ran twice or never is judged by this log, never by the jobs table: handlers write to it over a connection
of their own, in autocommit, so that a line is there whatever becomes of the job, its transaction and its worker. The
times are the database's, and so they are comparable between processes.
"""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import class_row

__all__ = ["Entry", "TruthLog", "overlaps"]

CREATE = """
CREATE TABLE IF NOT EXISTS truth (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id  bigint NOT NULL,
    attempt int NOT NULL,
    pid     int NOT NULL,
    worker  text,
    event   text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    note    text
)
"""

INSERT = """
INSERT INTO truth (job_id, attempt, pid, worker, event, note)
VALUES (%(job_id)s, %(attempt)s, %(pid)s, %(worker)s, %(event)s, %(note)s)
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the log. `pid` is that of the handler's process."""

    job_id: int
    attempt: int
    pid: int
    worker: str | None
    event: str
    at: datetime
    note: str | None


class TruthLog:
    """Write and read the log of one test's database.

    One object serves one process, any number of its tasks (`write`) and threads (`write_blocking`); it connects when
    it is first used.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._connecting = asyncio.Lock()
        self._blocking: psycopg.Connection[Any] | None = None
        self._thread = threading.Lock()

    async def create(self) -> None:
        """Create the table, once, before any handler writes."""
        await (await self._connect()).execute(CREATE)

    async def write(
        self, job_id: int, attempt: int, event: str, note: str | None = None, *, worker: str | None = None
    ) -> None:
        """Append a line: "start", "end", or whatever the test is about."""
        await (await self._connect()).execute(INSERT, _params(job_id, attempt, event, note, worker))

    def write_blocking(
        self, job_id: int, attempt: int, event: str, note: str | None = None, *, worker: str | None = None
    ) -> None:
        """Append a line from a thread, or from a handler that blocks its event loop on purpose."""
        with self._thread:
            if self._blocking is None:
                self._blocking = psycopg.connect(self._dsn, autocommit=True, application_name="truth")
            self._blocking.execute(INSERT, _params(job_id, attempt, event, note, worker))

    async def rows(self, job_id: int | None = None, event: str | None = None) -> list[Entry]:
        """Give the lines in the order of writing, all of them or those of one job or event."""
        cursor = (await self._connect()).cursor(row_factory=class_row(Entry))
        await cursor.execute(
            """
            SELECT job_id, attempt, pid, worker, event, at, note FROM truth
            WHERE (%(job_id)s::bigint IS NULL OR job_id = %(job_id)s)
              AND (%(event)s::text IS NULL OR event = %(event)s)
            ORDER BY seq
            """,
            {"job_id": job_id, "event": event},
        )
        return await cursor.fetchall()

    async def counts(self, event: str = "start") -> Counter[int]:
        """Tell how often each job came to an event."""
        return Counter(entry.job_id for entry in await self.rows(event=event))

    async def overlaps(self) -> list[tuple[Entry, Entry]]:
        """Give what `overlaps` finds in all lines."""
        return overlaps(await self.rows())

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        with self._thread:
            if self._blocking is not None:
                self._blocking.close()
                self._blocking = None

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        async with self._connecting:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._dsn, autocommit=True, application_name="truth"
                )
            return self._connection


def overlaps(entries: Sequence[Entry], run: Callable[[Entry], Hashable] | None = None) -> list[tuple[Entry, Entry]]:
    """Give the pairs of starts of one job of which the second came before the first had ended.

    Args:
        entries: in the order of writing.
        run: tells to which run of its job a line belongs; by attempt and process, if not given.

    A run that never wrote "end" (killed, cancelled without a `finally`) overlaps nothing: its process was gone.
    """
    run = run or _run
    found: list[tuple[Entry, Entry]] = []
    open_runs: dict[Hashable, Entry] = {}
    ended = {run(entry) for entry in entries if entry.event == "end"}
    for entry in entries:
        if entry.event == "start":
            found.extend((other, entry) for other in open_runs.values() if other.job_id == entry.job_id)
            if run(entry) in ended:
                open_runs[run(entry)] = entry
        elif entry.event == "end":
            open_runs.pop(run(entry), None)
    return found


def _run(entry: Entry) -> tuple[int, int, int]:
    return entry.job_id, entry.attempt, entry.pid


def _params(job_id: int, attempt: int, event: str, note: str | None, worker: str | None) -> dict[str, object]:
    return {
        "job_id": job_id,
        "attempt": attempt,
        "pid": os.getpid(),
        "worker": worker,
        "event": event,
        "note": note,
    }
