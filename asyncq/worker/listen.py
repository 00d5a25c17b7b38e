"""Keep listening: reconnect after a loss, subscribe again, and then look at everything.

Between a loss and the new subscription notifications are gone for good, so the look after each subscription is what
makes them safe to lose. While there is no subscription the worker looks by itself.

Behind a pooler in transaction mode a subscription is taken and nothing is ever delivered. So each new one is tried out
by a notification from another connection. Where that does not come the worker polls, and tries again once a minute; not
through a pooler, which hands LISTEN to any session of its own each time.

The connection also holds the locks by which senders see whether a notification is needed: `asyncq.worker.quiet` decides
which. One task reads what arrives and sends these statements, in turn. Twice a minute the worker says there that it
lives; a connection that listens elsewhere has to answer something else.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

import anyio
import psycopg

from asyncq.db import quiet
from asyncq.db.connection import Address, Session
from asyncq.db.listen import Heard, Listening, listening
from asyncq.worker.presence import Presence
from asyncq.worker.quiet import Quiet, State
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup

__all__ = ["Listener"]

logger = logging.getLogger("asyncq.worker")

REPORT_SECONDS = 30.0
"""Between two signs of life. A half-open connection is as silent as an idle one: only an answer tells them apart."""

RETRY_SECONDS = 60.0
"""From a subscription that did not deliver to the next one."""


class Listener:
    """Listen until ended.

    Args:
        address: of a connection of its own.
        schema: whose notifications.
        queues: the states of the queues served.
        sender: another connection, to try the subscription out.
        presence: says that the worker lives.
        elsewhere: whether the address leads another way than the sender's, and perhaps as another role.
        notified: takes what was heard of them, as far as it is to be followed.
        begun: called after each successful subscription, and when it is settled that there is none to be had. Whatever
            was committed before may have gone unnoticed.
        missed: takes a queue that has to be looked at, for it may have got work without a notification.
        changed: called when a queue is to be looked at from now on, or no more, without having been told.
    """

    def __init__(
        self,
        address: Address,
        schema: str,
        *,
        queues: Mapping[str, Quiet],
        sender: Session,
        presence: Presence,
        elsewhere: bool,
        notified: Callable[[Heard], None],
        begun: Callable[[], None],
        missed: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self._address = address
        self._schema = schema
        self._queues = queues
        self._sender = sender
        self._presence = presence
        self._elsewhere = elsewhere
        self._report_at = 0.0
        self._notified = notified
        self._begun = begun
        self._missed = missed
        self._changed = changed
        self._wakeup = Wakeup()
        self._scope = anyio.CancelScope()
        self._ended = False
        self._sends = False
        self._deaf = False

    def wake(self) -> None:
        """Have it look at the states: one of them may wish something by now."""
        self._wakeup.set()

    def end(self) -> None:
        """Let `run` end: at once, or after the statement that is under way."""
        self._ended = True
        if not self._sends:
            self._scope.cancel()

    async def run(self) -> None:
        """Listen, and again after each loss."""
        with self._scope:
            await self._listen()

    async def _listen(self) -> None:
        trouble = Trouble("listening where listen_dsn leads to" if self._elsewhere else "listening")
        begun = False
        while not self._ended:
            try:
                async with listening(self._address, self._schema) as connection:
                    hears = await connection.hears(self._sender, self._schema)
                    trouble.over()
                    begun = True
                    if hears:
                        self._hears(anyio.current_time())
                        await self._serve(connection)
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                now = anyio.current_time()
                for each in self._queues.values():
                    each.lost(now)
                self._changed()
                pause = trouble.met(error, now)
                if not begun:
                    # The worker looks by itself meanwhile, so it can begin.
                    begun = True
                    self._begun()
                await anyio.sleep(pause)
            else:
                if not hears:
                    await self._poll(again=not connection.pooled)

    def _hears(self, now: float) -> None:
        if self._deaf:
            logger.info("listening: notifications arrive again")
            self._deaf = False
        for each in self._queues.values():
            each.subscribed(now)
        self._begun()

    async def _poll(self, *, again: bool) -> None:
        """Leave it to the worker to look by itself, which it does without a subscription; for a while, or for good."""
        if not self._deaf:
            logger.warning(
                "listening: notifications do not arrive, as behind a pooler in transaction mode; looking for jobs once"
                " a second instead, unless --listen-dsn gives a direct connection to the same database"
            )
            self._deaf = True
        while True:
            # Nobody tells when the pooler leads to another server.
            self._begun()
            await self._report_by_sender()
            await anyio.sleep(RETRY_SECONDS)
            if again:
                return

    async def _report(self, connection: Listening) -> None:
        self._report_at = anyio.current_time() + REPORT_SECONDS
        if self._elsewhere:
            await connection.probe()
            await self._report_by_sender()
        else:
            await self._presence.report(connection)

    async def _report_by_sender(self) -> None:
        # What is wrong with that connection is the trouble of those that need it.
        with suppress(psycopg.Error, OSError):
            await self._presence.report(self._sender)

    async def _serve(self, connection: Listening) -> None:
        self._report_at = 0.0
        while True:
            self._hear(connection)
            self._sends = True
            try:
                await self._press(connection)
                await self._hold(connection)
                await self._read(connection)
                await self._ask(connection)
                if self._presence.news or anyio.current_time() >= self._report_at:
                    await self._report(connection)
            finally:
                self._sends = False
            if self._ended:
                return
            # What came along with an answer shows no more on the socket.
            self._hear(connection)
            now = anyio.current_time()
            wake_at = min([self._report_at, *(each.wake_at(now) for each in self._queues.values())])
            with connection.readable(self._wakeup.set):
                await self._wakeup.sleep(max(wake_at - now, 0.0))

    def _hear(self, connection: Listening) -> None:
        now = anyio.current_time()
        for heard in connection.take():
            queue = self._queues.get(heard.queue)
            if queue is None:
                continue
            if heard.question:
                queue.asked(now)
                continue
            queue.heard(now)
            # Who looks by itself finds it in any case, but for what lies where it does not look.
            if heard.past or queue.state is State.IDLE:
                self._notified(heard)

    async def _press(self, connection: Listening) -> None:
        """Find out whether notifications hold writers up."""
        now = anyio.current_time()
        doubting = [queue for queue in self._queues.values() if queue.doubts(now)]
        if not doubting:
            return
        waiting = await quiet.pressure(connection, self._schema)
        now = anyio.current_time()
        for queue in doubting:
            queue.pressure(waiting, now)

    async def _hold(self, connection: Listening) -> None:
        """Change what is held of the locks as the states wish."""
        now = anyio.current_time()
        wishes = {name: wish for name, queue in self._queues.items() if (wish := queue.wish(now)) is not None}
        if not wishes:
            return
        changes = [quiet.Change(name, self._queues[name].state.value, wish.value) for name, wish in wishes.items()]
        got = await quiet.hold(connection, self._schema, changes)
        now = anyio.current_time()
        for name, wish in wishes.items():
            self._queues[name].settle(wish, now, got=got[name])
        self._changed()

    async def _read(self, connection: Listening) -> None:
        """Look for what senders committed that saw no need to notify."""
        now = anyio.current_time()
        reading = [name for name, queue in self._queues.items() if queue.reads(now)]
        if not reading:
            return
        writers = await quiet.writers(connection, self._schema)
        now = anyio.current_time()
        for name in reading:
            if self._queues[name].read(writers, now):
                self._missed(name)

    async def _ask(self, connection: Listening) -> None:
        """Ask others to give way."""
        asking = [name for name, queue in self._queues.items() if queue.asks]
        for name in asking:
            self._queues[name].asks = False
        if asking:
            await quiet.ask(connection, self._schema, asking)
