"""The end of a process that was told to stop: in time, whatever holds its event loop up.

The number of each signal is written into a socket, from C and at once, also while the main thread is blocked in code
that does not come back to the interpreter. A thread reads it, notes by when the process must have ended, and hands it
on to the event loop, as if it had come there.

Code that keeps Python's global lock stops this thread too, for as long.
"""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf

from asyncq.worker import ExitCode
from asyncq.worker.watchdog import SAY_SECONDS, blocking, logger, say

__all__ = ["END_SECONDS", "FORCED_END_SECONDS", "Deadline"]

END_SECONDS = 13.7
"""How long after the grace period the process ends itself. An orderly end takes at most 13."""

FORCED_END_SECONDS = 6.7
"""How long after a second signal. An orderly end takes at most 6."""

LISTEN_SECONDS = 2.0
"""How often it makes sure that the signals come here first."""


class Deadline:
    """End the process in time after a signal. Made and used in the main thread.

    Args:
        loop: the event loop, which handles the signals already.
        signals: those that stop.
        grace: seconds that jobs have after the first of them.
        named: gives a name to what an asyncio task runs, or None. Called in the thread.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        signals: Sequence[signal.Signals],
        *,
        grace: float,
        named: Callable[[asyncio.Task[object]], str | None],
    ) -> None:
        self._loop = loop
        self._main_thread = threading.get_ident()
        self._signals = signals
        self._grace = grace
        self._named = named
        self._told_at: float | None = None
        self._ends_at: float | None = None
        self._read, self._write = socket.socketpair()
        self._write.settimeout(0.0)
        self._theirs = -1
        threading.Thread(target=self._watch, name="asyncq deadline", daemon=True).start()

    async def keep_listening(self) -> None:
        """Have the signals come here first, until cancelled; a handler that takes one turns them to the event loop."""
        while True:
            self.listen()
            await asyncio.sleep(LISTEN_SECONDS)

    def listen(self) -> None:
        """Have the signals come here first; again each time the event loop has been started."""
        here = self._write.fileno()
        theirs = signal.set_wakeup_fd(here, warn_on_full_buffer=False)
        if theirs != here:
            self._theirs = theirs

    def late(self) -> float:
        """Seconds since the first signal came."""
        return 0.0 if self._told_at is None else time.monotonic() - self._told_at

    def left(self) -> float:
        """Seconds until it ends the process; infinity while it does not."""
        return inf if self._ends_at is None else self._ends_at - time.monotonic()

    # ------------------------------------------------------------------------------------------------- in the thread

    def _watch(self) -> None:
        while True:
            self._read.settimeout(None if self._ends_at is None else max(self._ends_at - time.monotonic(), 0.001))
            try:
                numbers = self._read.recv(64)
            except TimeoutError:
                self._end()
            else:
                self._note(numbers)
                self._hand_on(numbers)

    def _note(self, numbers: bytes) -> None:
        now = time.monotonic()
        for number in numbers:
            if number not in self._signals:
                continue
            if self._ends_at is None:
                self._told_at = now
                self._ends_at = now + self._grace + END_SECONDS
            else:
                self._ends_at = min(self._ends_at, now + FORCED_END_SECONDS)

    def _hand_on(self, numbers: bytes) -> None:
        with suppress(OSError, RuntimeError):  # the event loop is closed by now
            if self._theirs >= 0:
                os.write(self._theirs, numbers)
            else:
                # On Windows, where the interpreter looks for signals once the event loop turns.
                self._loop.call_soon_threadsafe(lambda: None)

    def _end(self) -> None:
        job, stack = blocking(self._loop, self._main_thread, self._named)
        thread = say(
            logger.critical,
            "not stopped %.0f s after the signal, the event loop is blocked by %s: this process ends itself, its jobs"
            " run again elsewhere when their leases have ended; it is at %s",
            self.late(), job, stack,
        )  # fmt: skip
        thread.join(SAY_SECONDS)
        os._exit(ExitCode.STALLED)
