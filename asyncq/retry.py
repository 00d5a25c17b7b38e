"""When a failed job runs again: backoff as arithmetic. The random number comes in as a value."""

import logging
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta

from asyncq.errors import LONGEST_DELAY, ConfigurationError
from asyncq.failure import describe

__all__ = ["Backoff", "RetryPolicy"]

logger = logging.getLogger("asyncq")

Backoff = Callable[[int, BaseException], timedelta]
"""A delay from the number of attempts so far, 1 or more, and the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Decide when a failed job is tried again: after `base` times `factor` ** attempts, capped, with jitter.

    The default waits 2 ** attempts seconds, at most an hour, times a random number between 0.5 and 1. The delay is
    finite and never negative, however many attempts there were: the cap is applied before anything can overflow.

    Args:
        base: the unit of the backoff, more than 0 and at most 36,500 days.
        factor: the growth by each attempt, 1 or more. 1 waits about `base` each time.
        longest: the cap, at most 36,500 days.
        jitter: the share of the delay that is left to chance, 0 to 1.
        give_up_on: exceptions that discard the job at once. An exception group counts when all its leaves do.
        backoff: a function of (attempts, exception) that gives the delay in place of the formula; `longest` and
            `jitter` are not applied to it. What it gives is clamped to 0 to 36,500 days; if it raises or gives no
            `timedelta`, this is logged and the formula is used.

    Raises:
        ConfigurationError: a value is of another type or out of range.

    >>> policy = RetryPolicy(longest=timedelta(seconds=60))
    >>> [policy.seconds(attempts, ValueError(), chance=0.0) for attempts in (1, 2, 3, 1000)]
    [2.0, 4.0, 8.0, 60.0]
    >>> policy.seconds(3, ValueError(), chance=1.0)
    4.0
    """

    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    longest: timedelta = timedelta(hours=1)
    jitter: float = 0.5
    give_up_on: tuple[type[BaseException], ...] = ()
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        for name in ("base", "longest"):
            value: object = getattr(self, name)
            if not isinstance(value, timedelta) or not timedelta(0) < value <= LONGEST_DELAY:
                raise ConfigurationError(
                    f"RetryPolicy({name}=) must be a timedelta of more than 0 and at most 36,500 days, not {value!r}"
                )
        for name, low, high in (("factor", 1.0, math.inf), ("jitter", 0.0, 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise ConfigurationError(
                    f"RetryPolicy({name}=) must be a number from {low:g} to {high:g}, not {value!r}"
                )
        kinds: object = self.give_up_on
        if not isinstance(kinds, tuple) or not all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds):
            raise ConfigurationError(f"RetryPolicy(give_up_on=) must be a tuple of exception classes, not {kinds!r}")
        if self.backoff is not None and not callable(self.backoff):
            raise ConfigurationError(f"RetryPolicy(backoff=) must be a function, not {self.backoff!r}")

    def gives_up(self, error: BaseException) -> bool:
        """Say whether this failure is final; a group's leaves must all be."""
        if isinstance(error, self.give_up_on):
            return True
        if isinstance(error, BaseExceptionGroup):
            inner: tuple[BaseException, ...] = error.exceptions
            return all(self.gives_up(each) for each in inner)
        return False

    def seconds(self, attempts: int, error: BaseException, *, chance: float) -> float:
        """Give the delay before the next run.

        Args:
            attempts: the runs so far, 1 or more.
            error: why the latest one failed.
            chance: a random number from 0 to 1.
        """
        if self.backoff is not None:
            given = self._custom(attempts, error)
            if given is not None:
                return given
        longest = self.longest.total_seconds()
        unit = self.base.total_seconds()
        # Compared as logarithms: the power itself may be too large for a float.
        grows_past = math.log2(unit) + attempts * math.log2(self.factor) >= math.log2(longest)
        delay = longest if grows_past else unit * self.factor**attempts
        return delay * (1.0 - self.jitter * chance)

    def _custom(self, attempts: int, error: BaseException) -> float | None:
        assert self.backoff is not None
        given: object = None
        try:
            given = self.backoff(attempts, error)
            if not isinstance(given, timedelta):
                raise TypeError(f"it gave {type(given).__name__}, not a timedelta")
        except BaseException as problem:  # noqa: BLE001 - whatever users' code raises, the job must get its outcome
            if isinstance(given, Coroutine):
                given.close()  # one that nobody awaits would warn
            logger.warning(
                "the backoff function %s failed, the formula is used: %s",
                getattr(self.backoff, "__qualname__", type(self.backoff).__name__),
                describe(problem).splitlines()[-1],
            )
            return None
        return min(max(given.total_seconds(), 0.0), LONGEST_DELAY.total_seconds())
