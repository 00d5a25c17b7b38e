"""Putting jobs in: `sql/queries/jobs/defer.sql` for one, `defer_many.sql` for many.

All runs on the user's connection and in the user's transaction, of which nothing is changed: no setting, no row
factory, no adapter, and neither its beginning nor its end.

Many jobs go in batches, one INSERT each, and the next batch is made while the server is at work on the last: the
server's share is the larger one, so that is all the time there is. Why INSERT and not COPY: the time goes into the
table's indexes and checks, which cost both the same; COPY gives no ids, which would have to be drawn first by a right
that those who insert need not have; it checks the names of queue and task again in each row; and it is refused in
pipeline mode and where row security is on.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import psycopg
from anyio.lowlevel import checkpoint
from psycopg.pq import TransactionStatus

from asyncq.db.connection import PlainCursor
from asyncq.db.statements import load

__all__ = ["Stored", "few", "many", "one"]

Connection = psycopg.AsyncConnection[Any]

_SEPARATOR = "\x1e"
"""Between the JSON of one job and the next: a character that JSON never contains, not even as white space."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What is written beside the arguments when a job is deferred."""

    queue: str
    task: str
    priority: int
    run_at: datetime | None
    delay_seconds: float
    max_attempts: int
    lease_seconds: float

    def params(self, args: str, headers: str | None) -> dict[str, object]:
        """The parameters of the statement."""
        return {
            "queue": self.queue,
            "task": self.task,
            "priority": self.priority,
            "run_at": self.run_at,
            "delay_seconds": self.delay_seconds,
            "max_attempts": self.max_attempts,
            "lease_seconds": self.lease_seconds,
            "args": args,
            "headers": headers,
        }


async def one(
    connection: Connection, schema: str, stored: Stored, args: str, headers: str | None = None
) -> tuple[int, datetime]:
    """Insert one job; gives its id and its `run_at`. Its headers are JSON, as its args are."""
    cursor = PlainCursor(connection)
    async with _turn(connection):
        await cursor.execute(load("jobs/defer", schema), stored.params(args, headers), binary=True)
        row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


async def few(
    connection: Connection, schema: str, stored: Stored, args: Sequence[str], headers: str | None = None
) -> list[int]:
    """Insert some jobs in one statement, which is a whole in itself; gives their ids in the order of `args`."""
    async with _turn(connection):
        return await _insert(connection, schema, stored, args, headers)


async def many(
    connection: Connection,
    schema: str,
    stored: Stored,
    first: Sequence[str],
    following: Callable[[], Awaitable[Sequence[str]]],
    *,
    headers: str | None = None,
) -> list[int]:
    """Insert batches of jobs, all or none; gives their ids in order.

    Args:
        connection: the caller's.
        schema: where the table is.
        stored: what all the jobs have in common.
        first: the arguments of the first batch.
        following: makes the next batch, and at the end one without jobs. It lets the event loop run now and then.
        headers: of all of them, JSON.
    """
    ids: list[int] = []
    async with _whole(connection):
        batch = first
        while batch:
            # A task of its own for the statement, not for the caller's code: whoever made the calls may mind in which
            # task and context they are read.
            inserting = asyncio.create_task(_insert(connection, schema, stored, batch, headers))
            try:
                await checkpoint()  # it is sent at once, before the next is read
                batch = await following()
            except BaseException as error:
                await _settle(inserting, error)
                raise
            ids += await inserting
    return ids


async def _settle(inserting: asyncio.Task[list[int]], error: BaseException) -> None:
    """Let the statement end before it is undone: nothing else can be sent meanwhile.

    What it ends with, the caller does not learn: there is an error already.
    """
    if isinstance(error, asyncio.CancelledError):
        inserting.cancel()  # psycopg then cancels the statement on the server, and waits for its end
    while not inserting.done():
        try:
            await asyncio.wait((inserting,))
        except asyncio.CancelledError:
            inserting.cancel()
    if not inserting.cancelled():
        inserting.exception()  # looked at, or the event loop would report it as lost


async def _insert(
    connection: Connection, schema: str, stored: Stored, args: Sequence[str], headers: str | None
) -> list[int]:
    cursor = PlainCursor(connection)
    # One text, which psycopg only copies: for an array it would spend 4 microseconds on each element.
    await cursor.execute(load("jobs/defer_many", schema), stored.params(_SEPARATOR.join(args), headers), binary=True)
    row = await cursor.fetchone()
    assert row is not None
    return row[0]


_turns: WeakKeyDictionary[Connection, anyio.Lock] = WeakKeyDictionary()
"""Connections on which several statements were made a whole, and whose turn it is there."""


def _turn(connection: Connection) -> anyio.Lock | nullcontext[None]:
    """Wait for a whole that another task has open on the connection: its undoing would take this statement along."""
    return _turns.get(connection) or nullcontext()


@asynccontextmanager
async def _whole(connection: Connection) -> AsyncGenerator[None]:
    """Make several statements all or nothing, without ending a transaction that is the caller's to end."""
    async with _turns.setdefault(connection, anyio.Lock()), _savepoint(connection):
        yield


@asynccontextmanager
async def _savepoint(connection: Connection) -> AsyncGenerator[None]:
    if not connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        # psycopg's transaction() would commit at its end here. Any statement begins the caller's own transaction, as
        # it would for the caller; what follows is then a savepoint in it.
        async with PlainCursor(connection) as cursor:
            await cursor.execute("select 1")
    async with connection.transaction():
        yield
