"""How a run ends: the outcomes, the decision between them, and the one table of what each does to the row.

`decide` is a pure function. What it needs from outside, chance and the reason of an interruption, comes in as values.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from asyncq.errors import Cancel, Retry, Snooze
from asyncq.failure import clean, describe, type_name
from asyncq.job import JobState
from asyncq.retry import RetryPolicy

__all__ = [
    "COMPLETED",
    "Cancelled",
    "Change",
    "Completed",
    "Discarded",
    "Interruption",
    "Outcome",
    "Released",
    "Retried",
    "Snoozed",
    "change",
    "decide",
    "kind_of",
]


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned: the row is deleted."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The run failed and attempts are left: it runs again after the delay, in seconds."""

    delay: float
    error: str


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked for a later run that costs no attempt."""

    delay: float


@dataclass(frozen=True, slots=True)
class Released:
    """The run was interrupted by a stop, or never began: its attempt is given back, its place in line kept."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler ended the job on purpose: it is kept, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Discarded:
    """The run failed for the last time: the job is a dead letter."""

    error: str


Outcome = Completed | Retried | Snoozed | Released | Cancelled | Discarded


class Interruption(Enum):
    """Why the worker ordered a handler to end."""

    TIMEOUT = "it ran past its timeout"
    STOP = "the worker stops"
    LOST = "its lease was lost"


def decide(
    error: BaseException | None,
    interruption: Interruption | None,
    *,
    attempts: int,
    max_attempts: int,
    policy: RetryPolicy,
    chance: float,
    final: bool = False,
) -> Outcome:
    """Decide the outcome of one run.

    Args:
        error: what the handler raised; None, it returned.
        interruption: why it was told to end, if it was.
        attempts: the runs so far, this one included.
        max_attempts: the job's limit.
        policy: what its task says about retries.
        chance: a random number from 0 to 1, for the jitter.
        final: discard a failure at once: another attempt could not end otherwise.

    A handler that returned, or raised a `JobSignal`, has said how its run ended, also when it was told to stop. Any
    other exception after a stop was ordered is an interruption and costs no attempt. Past its timeout a run has
    failed, even if the handler went on and returned.

    >>> decide(None, None, attempts=1, max_attempts=10, policy=RetryPolicy(), chance=0.0)
    Completed()
    >>> decide(Snooze(30), None, attempts=1, max_attempts=10, policy=RetryPolicy(), chance=0.0)
    Snoozed(delay=30.0)
    >>> decide(ValueError("x"), None, attempts=10, max_attempts=10, policy=RetryPolicy(), chance=0.0)
    Discarded(error='ValueError: x')
    """
    try:
        return _decide(
            error,
            interruption,
            attempts=attempts,
            max_attempts=max_attempts,
            policy=policy,
            chance=chance,
            final=final,
        )
    except BaseException as bug:  # noqa: BLE001 - users' signals and policies may be made of anything
        text = clean(f"{describe(bug)}\n\nwhile deciding on a {type_name(error)} that could not be read")
        if final or attempts >= max_attempts:
            return Discarded(text)
        return Retried(RetryPolicy().seconds(attempts, bug, chance=chance), text)


def _decide(
    error: BaseException | None,
    interruption: Interruption | None,
    *,
    attempts: int,
    max_attempts: int,
    policy: RetryPolicy,
    chance: float,
    final: bool,
) -> Outcome:
    error = _only_leaf(error)
    if interruption is Interruption.TIMEOUT:
        late = TimeoutError(f"the handler was told to end because {interruption.value}")
        late.__cause__ = error
        error = late
    if error is None:
        return Completed()
    if isinstance(error, Snooze):
        return Snoozed(error.delay.total_seconds())
    if isinstance(error, Cancel):
        return Cancelled(clean(str(error.reason)) or "cancelled by its handler")
    if interruption is Interruption.STOP and not isinstance(error, Retry):
        return Released()
    text = clean(str(error.reason)) or "retry" if isinstance(error, Retry) else describe(error)
    if final or attempts >= max_attempts or policy.gives_up(error):
        return Discarded(text)
    if isinstance(error, Retry) and error.delay is not None:
        return Retried(error.delay.total_seconds(), text)
    return Retried(policy.seconds(attempts, error, chance=chance), text)


def _only_leaf(error: BaseException | None) -> BaseException | None:
    """A group of one counts as the one: a task group in the handler wraps even a single signal."""
    while isinstance(error, BaseExceptionGroup):
        leaves: tuple[BaseException, ...] = error.exceptions
        if len(leaves) != 1:
            break
        error = leaves[0]
    return error


def kind_of(error: BaseException | None, interruption: Interruption | None) -> str:
    """Name the type of a failure, for what counts equal ones.

    >>> kind_of(ExceptionGroup("of a task group", [ValueError("x")]), None), kind_of(None, Interruption.TIMEOUT)
    ('ValueError', 'TimeoutError')
    """
    if interruption is Interruption.TIMEOUT:
        return TimeoutError.__name__
    try:
        return type_name(_only_leaf(error))
    except BaseException:  # noqa: BLE001 - users' groups may be made of anything
        return type_name(error)


COMPLETED = "completed"
"""No state of a row: it is what becomes of a row that is deleted."""


class Change(NamedTuple):
    """What `complete.sql` or `finish.sql` does to the row.

    Args:
        state: the next state, or `COMPLETED`: the row is deleted.
        delay: seconds from now to the next run; None keeps `run_at`.
        refund: attempts given back.
        error: the new `last_error`; None keeps the old one.
    """

    state: str
    delay: float | None = None
    refund: int = 0
    error: str | None = None


_COMPLETED = Change(COMPLETED)
_RELEASED = Change(JobState.AVAILABLE.value, refund=1)


def change(outcome: Outcome) -> Change:
    """Give what an outcome does to the row: the whole table of transitions out of `running`.

    >>> change(Snoozed(30.0))
    Change(state='available', delay=30.0, refund=1, error=None)
    """
    match outcome:
        case Completed():
            return _COMPLETED
        case Retried(delay, error):
            return Change(JobState.AVAILABLE.value, delay=delay, error=error)
        case Snoozed(delay):
            return Change(JobState.AVAILABLE.value, delay=delay, refund=1)
        case Released():
            return _RELEASED
        case Cancelled(reason):
            return Change(JobState.CANCELLED.value, error=reason)
        case Discarded(error):
            return Change(JobState.DISCARDED.value, error=error)
