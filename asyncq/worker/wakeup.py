"""How every loop of the worker waits: until it is woken, until something is due, or through trouble of the database.

`Wakeup` is a loop's own alarm: a call of `set` is never lost, also when it comes while the loop is busy.
`Trouble` is a loop's memory of failing statements: how long to wait before the next try, and when to give up.
"""

import logging
import random
from dataclasses import dataclass, field

import anyio
import psycopg

__all__ = ["PERMANENT_SECONDS", "Trouble", "Wakeup", "logger"]

logger = logging.getLogger("asyncq.worker")

PERMANENT_SECONDS = 60.0
"""How long a missing object, a missing right or a refused statement is tried again: a migration may be under way."""

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0


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


@dataclass(slots=True)
class Trouble:
    """Count failures of one loop's statements, log an outage once, and say how long to wait.

    Args:
        doing: what the loop was doing, for the log.
        longest_wait: seconds between two tries, at most.
    """

    doing: str
    longest_wait: float = _LONGEST_WAIT
    _failures: int = field(default=0, init=False)
    _permanent_since: float | None = field(default=None, init=False)

    def met(self, error: BaseException, now: float) -> float:
        """Note a failure at the time `now`; gives the seconds to wait before the next try.

        Raises:
            BaseException: the failure itself, when trying again is of no use.
        """
        if not isinstance(error, (psycopg.Error, OSError, TimeoutError)):
            raise error
        if _permanent(error):
            if self._permanent_since is None:
                self._permanent_since = now
            elif now - self._permanent_since > PERMANENT_SECONDS:
                raise error
        else:
            self._permanent_since = None
        if self._failures == 0:
            logger.warning("%s: trouble with the database, trying again: %s", self.doing, one_line(error))
        wait = min(_FIRST_WAIT * 2.0 ** min(self._failures, 20), self.longest_wait)
        self._failures += 1
        return wait * random.uniform(0.5, 1.0)  # noqa: S311 - jitter

    def over(self) -> None:
        """Note a success."""
        if self._failures:
            logger.info("%s: the database answers again after %d failed tries", self.doing, self._failures)
        self._failures = 0
        self._permanent_since = None


def one_line(error: BaseException) -> str:
    """The first line of an error's text, or its type: enough for a log line."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _permanent(error: BaseException) -> bool:
    """Missing objects, missing rights, syntax: waiting does not mend them, but a migration under way may."""
    if not isinstance(error, psycopg.Error):
        return False
    return isinstance(error, psycopg.ProgrammingError) or (error.sqlstate or "")[:2] in ("42", "3F", "3D")
