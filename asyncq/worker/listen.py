"""Keep listening: reconnect after a loss, subscribe again, and then look at everything.

Between a loss and the new subscription notifications are gone for good, so the look after each subscription is what
makes them safe to lose. While there is no subscription the worker polls.
"""

from collections.abc import Callable
from contextlib import aclosing

import anyio

from asyncq.db.connection import Address
from asyncq.db.listen import Heard, listen
from asyncq.worker.trouble import Trouble

__all__ = ["Listener"]


class Listener:
    """Listen until ended.

    Args:
        address: of a connection of its own.
        schema: whose notifications.
        notified: takes what was heard.
        subscribed: called after each successful subscription.
    """

    def __init__(
        self, address: Address, schema: str, *, notified: Callable[[Heard], None], subscribed: Callable[[], None]
    ) -> None:
        self._address = address
        self._schema = schema
        self._notified = notified
        self._subscribed = subscribed
        self._scope = anyio.CancelScope()

    def end(self) -> None:
        """Let `run` end: it waits for nothing but the server, so it can be cancelled at any moment."""
        self._scope.cancel()

    async def run(self) -> None:
        """Listen, and again after each loss."""
        with self._scope:
            await self._listen()

    async def _listen(self) -> None:
        trouble = Trouble("listening")
        while True:
            try:
                async with aclosing(listen(self._address, self._schema)) as heard:
                    async for each in heard:
                        if each is None:
                            trouble.over()
                            self._subscribed()
                        else:
                            self._notified(each)
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                await anyio.sleep(trouble.met(error, anyio.current_time()))
