"""What every loop of the worker does when a statement fails: how long it waits, and when it gives up.

Connection loss, a server that shuts down or is read-only, time-outs, dead-locks and the like are waited out, for ever.
What no waiting mends, such as a missing table, is waited out for a minute, for a migration may be under way.
"""

import logging
import random
from dataclasses import dataclass, field

import psycopg

from asyncq.failure import type_name

__all__ = ["PERMANENT_SECONDS", "Trouble", "one_line", "refuses_data"]

logger = logging.getLogger("asyncq.worker")

PERMANENT_SECONDS = 60.0
"""How long a missing object, a missing right or a refused statement is tried again."""

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 5.0


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
        # A file that is missing is a statement's: the installation is broken, which no waiting mends.
        if isinstance(error, FileNotFoundError) or not isinstance(error, (psycopg.Error, OSError, TimeoutError)):
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
    return text.splitlines()[0] if text else type_name(error)


def _permanent(error: BaseException) -> bool:
    """Missing objects, missing rights, syntax: waiting does not mend them, but a migration under way may."""
    if not isinstance(error, psycopg.Error):
        return False
    return isinstance(error, psycopg.ProgrammingError) or (error.sqlstate or "")[:2] in ("42", "3F", "3D")


def refuses_data(error: BaseException) -> bool:
    """Say whether the database refuses what a statement would write, rather than the statement or the moment.

    Data exceptions and violated constraints (classes 21, 22, 23, 27, 44), and what a trigger of the user's raises
    (38, 39, P0).
    """
    if isinstance(error, UnicodeError):
        return True
    return isinstance(error, psycopg.Error) and (error.sqlstate or "")[:2] in (
        "21", "22", "23", "27", "38", "39", "44", "P0",
    )  # fmt: skip
