"""Notifications: LISTEN on a connection of its own, which `notifies()` holds for as long as it waits.

What comes in is a schema, what goes out are the names of queues that got work, and None after each successful LISTEN:
whatever was committed before that moment may have been missed, so it is the time to look at everything.

A payload is the queue's name; behind the control character 1, which is in no name, when a job was put into the past:
with an old `run_at`, or back into its old place by a release or a rescue.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

import anyio
import psycopg
from psycopg import sql

from asyncq.db.connection import Address, connect

__all__ = ["PROBE_SECONDS", "Heard", "listen"]

PROBE_SECONDS = 30.0
"""How long a silent connection is believed in before it has to answer."""

_PAST = "\x01"

ANSWER_SECONDS = 10.0
"""How long it may take to answer."""


class Heard(NamedTuple):
    """A queue that got work, and whether it may lie before work that was taken already."""

    queue: str
    past: bool


async def listen(address: Address, schema: str) -> AsyncGenerator[Heard | None]:
    """Listen until the connection breaks, which raises `psycopg.OperationalError`."""
    connection = await connect(address)
    try:
        await connection.execute(sql.SQL("listen {}").format(sql.Identifier(schema)))
        yield None
        while True:
            async with aclosing(connection.notifies(timeout=PROBE_SECONDS, stop_after=1)) as received:
                quiet = True
                async for notification in received:
                    quiet = False
                    yield Heard(notification.payload.removeprefix(_PAST), notification.payload.startswith(_PAST))
            if quiet:
                # A half-open connection is as silent as an idle one: only an answer tells them apart.
                try:
                    with anyio.fail_after(ANSWER_SECONDS):
                        await connection.execute("select 1")
                except TimeoutError:
                    raise psycopg.OperationalError("the server did not answer the listener in time") from None
    finally:
        with anyio.CancelScope(shield=True):
            await connection.close()
