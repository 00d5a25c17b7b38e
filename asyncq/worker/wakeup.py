"""How every loop of the worker sleeps: until it is woken, or until something is due.

A call of `Wakeup.set` is never lost, also when it comes while the loop is busy.
"""

import random

import anyio

__all__ = ["Wakeup", "jittered"]


class Wakeup:
    """An alarm for one sleeper. `set` before the sleep ends that sleep at once."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._is_set = False

    def set(self) -> None:
        """Wake the loop, or keep it from falling asleep."""
        # Called several times a job: all but the first call cost next to nothing.
        if not self._is_set:
            self._is_set = True
            self._event.set()

    async def sleep(self, seconds: float | None = None) -> None:
        """Sleep until woken, at most this long."""
        if seconds is None:
            await self._event.wait()
        elif seconds > 0:
            with anyio.move_on_after(seconds):
                await self._event.wait()
        # Without an await between waking and this line, nothing set in between is lost.
        self._event = anyio.Event()
        self._is_set = False


def jittered(seconds: float) -> float:
    """Half to all of it, so that a fleet does not act in lock-step."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret hangs on it
