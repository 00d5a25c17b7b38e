"""Notifications: LISTEN on a connection of its own.

What comes in is a schema, what goes out are the names of queues that got work. Whatever was committed before the LISTEN
may have been missed, so when there is a `Listening`, it is the time to look at everything.

A payload is the queue's name; behind the control character 1, which is in no name, when a job was put into the past:
with an old `run_at`, or back into its old place by a release or a rescue. Behind a tabulator it is a question from one
worker to another: see `asyncq.worker.quiet`.

Statements run on the connection too. Notifications come whenever something is read from it, so those that came along
with an answer are kept until they are asked for: the socket shows nothing of them any more.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, LiteralString, NamedTuple

import anyio
import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from asyncq.db.connection import Address, Session, apply_settings, connect

__all__ = ["ANSWER_SECONDS", "Heard", "Listening", "listening"]

ANSWER_SECONDS = 10.0
"""How long a statement may take to be answered."""

DELIVERY_SECONDS = 2.0
"""How long a notification may take to arrive."""

_PAST, _QUESTION = "\x01", "\t"


class Heard(NamedTuple):
    """A queue that got work, and whether it may lie before work that was taken already; or one that is asked about."""

    queue: str
    past: bool
    question: bool


@asynccontextmanager
async def listening(address: Address, schema: str) -> AsyncGenerator["Listening"]:
    """Listen; that the connection broke is raised by whatever is done with it next, as `psycopg.OperationalError`."""
    connection, pooled = await connect(address)
    try:
        # Made first: what is heard from the first moment on is for its handler.
        listening = Listening(connection, address, pooled=pooled)
        with anyio.fail_after(ANSWER_SECONDS):
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(schema)))
        yield listening
    finally:
        with anyio.CancelScope(shield=True):
            await connection.close()


class Listening:
    """A connection that listens."""

    def __init__(self, connection: psycopg.AsyncConnection[TupleRow], address: Address, *, pooled: bool) -> None:
        self._connection = connection
        self._address = address
        self.pooled = pooled
        """Whether a pooler is in between that does not keep the settings of a session."""
        self._payloads: list[str] = []
        connection.add_notify_handler(lambda notification: self._payloads.append(notification.payload))

    def take(self) -> list[Heard]:
        """Give what was heard since the last call, without waiting."""
        pgconn = self._connection.pgconn
        came = True
        while came:
            # To the end: what is left in a buffer of libpq's or of the encryption does not make the socket readable.
            pgconn.consume_input()
            came = False
            while (notification := pgconn.notifies()) is not None:
                self._payloads.append(notification.extra.decode())
                came = True
        if not self._payloads:
            return []
        payloads, self._payloads = self._payloads, []
        return [Heard(each.lstrip(_PAST + _QUESTION), each[:1] == _PAST, each[:1] == _QUESTION) for each in payloads]

    @contextmanager
    def readable(self, tell: Callable[[], object]) -> Generator[None]:
        """Call `tell` when something arrives during the block, an end of the connection too."""
        loop = asyncio.get_running_loop()
        socket = self._connection.pgconn.socket
        loop.add_reader(socket, tell)
        try:
            yield
        finally:
            loop.remove_reader(socket)

    async def hears(self, sender: Session, schema: str) -> bool:
        """Try it out with a notification from another connection; says whether it came.

        A pooler in transaction mode hands LISTEN to any session of its own, and forwards nothing to its idle clients.
        In session mode all is well, but for settings that it refused.
        """
        # To whoever else listens it is a question about a queue that is not theirs.
        token = secrets.token_hex(16)
        await sender.fetch(
            "select pg_notify(%(channel)s::text, %(payload)s::text)", {"channel": schema, "payload": _QUESTION + token}
        )
        arrived = asyncio.Event()
        came = False
        with self.readable(arrived.set), anyio.move_on_after(DELIVERY_SECONDS):
            # What else comes is of no use yet: when this is over everything is looked at.
            while not any(heard.queue == token for heard in self.take()):
                await arrived.wait()
                arrived.clear()
            came = True
        if self.pooled:
            with anyio.fail_after(ANSWER_SECONDS):
                if came:
                    await apply_settings(self._connection, self._address, local=False)
                else:
                    await self._connection.execute("unlisten *")
        return came

    async def fetch(self, statement: LiteralString, params: Mapping[str, Any] | None = None) -> Sequence[TupleRow]:
        """Run a statement and give its rows."""
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                cursor = await self._connection.execute(statement, params)
                rows = await cursor.fetchall()
        except TimeoutError:
            raise psycopg.OperationalError("the server did not answer the listener in time") from None
        return rows

    async def probe(self) -> None:
        """Have it answer."""
        await self.fetch("select 1")
