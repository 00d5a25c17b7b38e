"""Keep the leases while the event loop stands still, as it does when a handler blocks it.

A thread with an event loop of its own asks the worker's loop, as long as anything is held here, for a sign of life.
When none comes, it says in the log which job blocks, and where, and extends the leases on a connection of its own until
the worker's loop turns again: neither the job that blocks nor its neighbours are given to others meanwhile. A loop
that stood still for many leases will not turn again, and its jobs would be held for ever: the process ends itself.

Code that keeps Python's global lock stops this thread too. Then the leases run out, the jobs run again elsewhere, and
the outcomes of their runs here count for nothing.
"""

import asyncio
import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path

import anyio
import psycopg

from asyncq.db import jobs
from asyncq.db.connection import Address, Session
from asyncq.job import Lease
from asyncq.worker.heartbeat import interval
from asyncq.worker.options import ExitCode
from asyncq.worker.trouble import one_line

__all__ = ["SAY_SECONDS", "Watchdog", "blocking", "logger", "say"]

logger = logging.getLogger("asyncq.worker")

SHORTEST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.1, 1.0
"""Between two signs of life, and how long one may take."""

THAW_SECONDS = 0.05
"""How long the loop has to turn when the whole process stood still: its time too has passed then."""

FRAMES = 12
"""Innermost calls of what blocks that are shown."""

AGAIN_SECONDS = 0.2
"""Between two tries while the database does not answer."""

SAY_SECONDS = 1.0
"""How long the last line in the log may take: what blocks the loop may be the log itself."""

END_SECONDS = 1.0
"""How long the thread has to end, which may be in mid-statement."""


class Watchdog:
    """Watch the event loop in which it is made.

    Args:
        address: of its own connection, opened when it is first needed.
        schema: of the jobs.
        patience: seconds after which a statement has failed.
        shortest_lease: seconds, of all jobs that may be held here.
        most_leases: for how many leases the loop may stand still.
        held: gives the leases to extend. Called in the thread, while the loop stands still or, now and then, turns.
        named: gives a name to what an asyncio task runs, or None. Called in the thread.
        broke: takes what the thread died of. Called in the loop.
    """

    def __init__(
        self,
        address: Address,
        schema: str,
        *,
        patience: float,
        shortest_lease: float,
        most_leases: int,
        held: Callable[[], list[Lease]],
        named: Callable[[asyncio.Task[object]], str | None],
        broke: Callable[[BaseException], None],
    ) -> None:
        self._address = address
        self._schema = schema
        self._patience = patience
        self._look_seconds = min(max(interval(shortest_lease) / 4.0, SHORTEST_LOOK_SECONDS), LONGEST_LOOK_SECONDS)
        self._most_leases = most_leases
        self._held = held
        self._named = named
        self._broke = broke
        self._watched = asyncio.get_running_loop()
        self._watched_thread = threading.get_ident()
        self._over = asyncio.Event()
        self._started = False
        self._thread = threading.Thread(target=self._main, name="asyncq watchdog", daemon=True)
        # The thread's.
        self._own = asyncio.SelectorEventLoop()  # the kind that psycopg can use on Windows too
        self._ended = asyncio.Event()
        self._wake = asyncio.Event()
        self._asleep = False

    def start(self) -> None:
        """Begin to watch."""
        self._started = True
        self._thread.start()

    def expect(self) -> None:
        """Note that something is held now."""
        if self._asleep:
            self._asleep = False
            self._tell(self._wake)

    async def end(self) -> None:
        """Watch no more; comes back when the thread has ended, or after a second."""
        if not self._started:
            self._own.close()
            return
        self._tell(self._ended, self._wake)
        with anyio.move_on_after(END_SECONDS, shield=True):
            await self._over.wait()

    def _tell(self, *events: asyncio.Event) -> None:
        for event in events:
            with suppress(RuntimeError):  # the thread has ended, and its loop is closed
                self._own.call_soon_threadsafe(event.set)

    # ------------------------------------------------------------------------------------------------- in the thread

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._own) as runner:
                runner.run(self._watch())
        except Exception as error:  # noqa: BLE001 - nobody awaits a thread: the worker is told whatever ended it
            self._ask(lambda error=error: self._broke(error))
        finally:
            self._ask(self._over.set)

    def _ask(self, call: Callable[[], object]) -> bool:
        """Have something done in the loop that is watched; False when that is closed."""
        try:
            self._watched.call_soon_threadsafe(call)
        except RuntimeError:
            return False
        return True

    async def _watch(self) -> None:
        session = Session(self._address, patience=self._patience)
        try:
            while not self._ended.is_set():
                if not self._leases():
                    await self._sleep()
                    continue
                asked = self._own.time()
                turned = asyncio.Event()
                if not self._ask(lambda turned=turned: self._tell(turned)):
                    return
                if await _within(turned, self._look_seconds) or await _within(turned, THAW_SECONDS):
                    await _within(self._ended, self._look_seconds)
                else:
                    await self._stand_in(session, turned, asked)
        finally:
            await session.close()

    async def _sleep(self) -> None:
        """Wait until something is held."""
        self._wake.clear()
        self._asleep = True
        # What came to be held before this was set did not wake anybody.
        if not self._leases() and not self._ended.is_set():
            await self._wake.wait()
        self._asleep = False

    def _leases(self) -> list[Lease]:
        while True:
            # The loop may turn meanwhile, and change what is being read.
            with suppress(RuntimeError):
                return self._held()

    async def _stand_in(self, session: Session, turned: asyncio.Event, since: float) -> None:
        """Extend the leases until the loop turns."""
        own = self._own
        job, stack = blocking(self._watched, self._watched_thread, self._named)
        say(logger.warning, "the event loop has been blocked for %.1f s, by %s; leases are kept meanwhile; it is at %s",
             own.time() - since, job, stack)  # fmt: skip
        troubled = False
        longest = max((lease.seconds for lease in self._leases()), default=60.0)
        while not turned.is_set() and not self._ended.is_set():
            left = since + self._most_leases * longest - own.time()
            if left <= 0.0:
                if await _within(turned, THAW_SECONDS):
                    break
                self._give_up(own.time() - since)
            leases = self._leases()
            pause = min((interval(lease.seconds) / 2.0 for lease in leases), default=1.0)
            try:
                if leases:
                    await jobs.heartbeat(session, self._schema, leases)
            except (psycopg.Error, OSError, TimeoutError) as error:
                pause = min(AGAIN_SECONDS, pause)
                if not troubled:
                    troubled = True
                    say(logger.warning, "extending leases in its place: trouble with the database, trying again: %s",
                         one_line(error))  # fmt: skip
            await _within(turned, min(pause, max(left, 0.0)))
        say(logger.warning, "the event loop turns again, after %.1f s", own.time() - since)

    def _give_up(self, blocked: float) -> None:
        job, stack = blocking(self._watched, self._watched_thread, self._named)
        thread = say(
            logger.critical,
            "the event loop has been blocked for %.0f s, by %s: this process ends itself, its jobs run again elsewhere"
            " when their leases have ended; it is at %s",
            blocked, job, stack,
        )  # fmt: skip
        thread.join(SAY_SECONDS)
        os._exit(ExitCode.STALLED)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        await event.wait()
    return event.is_set()


def blocking(
    loop: asyncio.AbstractEventLoop, thread: int, named: Callable[[asyncio.Task[object]], str | None]
) -> tuple[str, str]:
    """Say what blocks another thread's event loop: the job, if it is one, and where it is, the innermost call first."""
    task = asyncio.current_task(loop)
    name = None if task is None else named(task) or f"the asyncio task {task.get_name()}"
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented, and the only way to another thread's stack
    # Without the calls that lead from the program's start to the handler: they are always the same.
    frames: Iterable[traceback.FrameSummary] = () if frame is None else traceback.extract_stack(frame)
    calls = [f"{call.filename}:{call.lineno} in {call.name}: {call.line}" for call in dropwhile(_leads_there, frames)]
    stack = " < ".join(calls[: -FRAMES - 1 : -1])
    return name or "something that is no asyncio task", stack or "an unknown place"


def _leads_there(call: traceback.FrameSummary) -> bool:
    return call.filename.startswith(_MACHINERY) or call.name == "<module>"


_FOLDERS = (Path(__file__).parents[1], Path(inspect.getfile(asyncio)).parent, Path(inspect.getfile(anyio)).parent)
_MACHINERY = ("<frozen", *(f"{folder}{os.sep}" for folder in _FOLDERS))


def say(log: Callable[..., None], *args: object) -> threading.Thread:
    """Log from a thread of its own: the one that is blocked may hold the lock of a log handler."""
    thread = threading.Thread(target=log, args=args, name="asyncq watchdog's log", daemon=True)
    thread.start()
    return thread
