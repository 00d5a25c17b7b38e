"""The errors that asyncq raises, and the signals a handler raises.

::

    Exception
     +-- AsyncqError
     |    +-- ConfigurationError             found before any job runs
     |    |    +-- TaskAlreadyRegisteredError
     |    |    +-- UnknownTaskError
     |    |    +-- SchemaOutdatedError
     |    +-- DeferError                     nothing was stored, the transaction is still usable
     |         +-- InvalidArgsError          pydantic's error, if any, is its __cause__
     +-- JobSignal                           raised by a handler, to end its run on purpose
          +-- Retry
          +-- Snooze
          +-- Cancel

Errors of the database driver are never wrapped: they reach the caller as psycopg raised them.
"""

from datetime import timedelta

__all__ = [
    "AsyncqError",
    "Cancel",
    "ConfigurationError",
    "DeferError",
    "InvalidArgsError",
    "JobSignal",
    "Retry",
    "SchemaOutdatedError",
    "Snooze",
    "TaskAlreadyRegisteredError",
    "UnknownTaskError",
]

LONGEST_DELAY = timedelta(days=36_500)


class AsyncqError(Exception):
    """Catch whatever asyncq itself raises; handlers' signals are no errors and are not included."""


class ConfigurationError(AsyncqError):
    """A queue, a task, an option or a worker was set up in a way that cannot work."""


class TaskAlreadyRegisteredError(ConfigurationError):
    """Two tasks of one worker, or of one queue, have the same name."""


class UnknownTaskError(ConfigurationError):
    """A task was asked for by a name that nobody registered."""


class SchemaOutdatedError(ConfigurationError):
    """The database's schema is missing, too old for this release, or too new for it."""


class DeferError(AsyncqError):
    """A job was refused. Nothing was stored, and the caller's transaction is still usable."""


class InvalidArgsError(DeferError):
    """The arguments do not fit the handler's signature, or would not arrive as they were given."""


class JobSignal(Exception):  # noqa: N818 - a signal of the handler, not an error
    """Raised by a handler to say how its run shall end. Use one of `Retry`, `Snooze`, `Cancel`."""


def _checked(delay: timedelta | float, what: str) -> timedelta:
    if isinstance(delay, (int, float)) and not isinstance(delay, bool):
        try:
            delay = timedelta(seconds=delay)
        except (OverflowError, ValueError):
            raise ValueError(f"{what} must be between 0 and 36,500 days, not {delay!r} seconds") from None
    if not isinstance(delay, timedelta):
        raise TypeError(f"{what} must be a timedelta or a number of seconds, not {type(delay).__name__}")
    if not timedelta(0) <= delay <= LONGEST_DELAY:
        raise ValueError(f"{what} must be between 0 and 36,500 days, not {delay!r}")
    return delay


class Retry(JobSignal):
    """Raise to try again later. The attempt counts; when attempts are used up the job is discarded.

    Args:
        delay: how long to wait, 0 to 36,500 days, a `timedelta` or seconds. Left out, the task's
            `RetryPolicy` decides.
        reason: kept in the row's `last_error`.

    Raises:
        TypeError, ValueError: the delay is of another type or out of range.

    >>> Retry(delay=timedelta(minutes=5)).delay
    datetime.timedelta(seconds=300)
    """

    def __init__(self, delay: timedelta | float | None = None, reason: str = "") -> None:
        super().__init__(delay, reason)
        self.delay = None if delay is None else _checked(delay, "Retry(delay=)")
        self.reason = reason


class Snooze(JobSignal):
    """Raise to run again after a delay without using up an attempt: the job was not ready, not wrong.

    Args:
        delay: how long to wait, 0 to 36,500 days, a `timedelta` or seconds.

    Raises:
        TypeError, ValueError: the delay is of another type or out of range.

    >>> Snooze(30).delay
    datetime.timedelta(seconds=30)
    """

    def __init__(self, delay: timedelta | float) -> None:
        super().__init__(delay)
        self.delay = _checked(delay, "Snooze(delay)")


class Cancel(JobSignal):
    """Raise to end the job for good: it is kept as cancelled, with the reason, and can be replayed.

    >>> str(Cancel("the customer is gone"))
    'the customer is gone'
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
