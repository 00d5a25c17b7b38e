"""Notifications: LISTEN on a connection of its own, which `notifies()` holds for as long as it waits.

What comes in is a schema, what goes out are the names of queues that got work, and None after each successful LISTEN:
whatever was committed before that moment may have been missed, so it is the time to look at everything.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import psycopg
from psycopg import sql

from asyncq.db.connection import Address, connect

__all__ = ["PROBE_SECONDS", "listen"]

PROBE_SECONDS = 30.0
"""How long a silent connection is believed in before it has to answer."""

ANSWER_SECONDS = 10.0
"""How long it may take to answer."""


async def listen(address: Address, schema: str) -> AsyncGenerator[str | None]:
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
                    yield notification.payload
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
