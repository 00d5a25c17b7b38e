"""What happens in a worker, as data: said once, for logs, metrics, traces and whoever else wants to know.

A subscriber is a plain function. It is called where the thing happens, in the event loop, between two jobs: it must be
quick and must not wait. What it raises is logged once and changes nothing.

::

    executor, claimer, finisher, rescuer, worker  --emit-->  Events  -->  log lines, tallies, metrics, traces
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from asyncq.job import JobState
from asyncq.outcome import Outcome
from asyncq.running import RunningJob

__all__ = [
    "Event",
    "Events",
    "JobFinished",
    "JobLeaseLost",
    "JobRescued",
    "JobStarted",
    "JobsClaimed",
    "OutcomesWritten",
    "WorkerDraining",
    "WorkerStarted",
    "WorkerStopped",
]

logger = logging.getLogger("asyncq.worker")


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A handler is about to run. Said in the task and the context in which it runs, as is its `JobFinished`.

    Attributes:
        job: the one that runs.
        waited: seconds from when it was due to its claim, 0 or more.
    """

    job: RunningJob
    waited: float


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A handler has ended, and it was decided what that means. It is not written yet.

    Attributes:
        job: the one that ran.
        outcome: what becomes of it. None: its lease was lost, and its end counts for nothing.
        error: what the handler raised.
        error_type: names the failure's type, `TimeoutError` past the timeout; None, unless it is retried or discarded.
        waited: as when it started.
        seconds: how long it ran.
    """

    job: RunningJob
    outcome: Outcome | None
    error: BaseException | None
    error_type: str | None
    waited: float
    seconds: float


@dataclass(frozen=True, slots=True)
class JobLeaseLost:
    """Somebody else may have the job by now: its handler is told to end. `JobFinished` follows when it has."""

    job: RunningJob


@dataclass(frozen=True, slots=True)
class JobRescued:
    """This worker took a job back whose lease had run out, as its holder had died, hung or lost the database.

    Attributes:
        job_id, queue, task: the job.
        state: `AVAILABLE`, it runs again; `DISCARDED`, its attempts are used up.
        attempts: the runs so far.
        worker: who held it.
    """

    job_id: int
    queue: str
    task: str
    state: JobState
    attempts: int
    worker: str


@dataclass(frozen=True, slots=True)
class JobsClaimed:
    """A claim came back.

    Attributes:
        jobs: how many it brought, perhaps none.
        seconds: from before it was sent until its answer was read.
    """

    jobs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class OutcomesWritten:
    """Outcomes were written by a statement of their own. Successes mostly go along with a claim instead.

    Attributes:
        jobs: how many.
        seconds: from before it was sent until its answer was read.
    """

    jobs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker is ready: it is subscribed to notifications, and about to look for the first time."""

    worker: str
    queues: Sequence[str]
    tasks: Sequence[str]
    concurrency: int


@dataclass(frozen=True, slots=True)
class WorkerDraining:
    """A worker was told to stop: it claims no more, and running jobs may end."""

    worker: str
    grace: float


@dataclass(frozen=True, slots=True)
class WorkerStopped:
    """A worker has ended.

    Attributes:
        worker: its id.
        forced: whether it was told to end at once, so that what ran was given back.
    """

    worker: str
    forced: bool


Event = (
    JobStarted
    | JobFinished
    | JobLeaseLost
    | JobRescued
    | JobsClaimed
    | OutcomesWritten
    | WorkerStarted
    | WorkerDraining
    | WorkerStopped
)

E = TypeVar("E", bound=Event)


class Events:
    """Hand what happens to those who asked for it.

    >>> events, heard = Events(), []
    >>> events.subscribe(JobsClaimed, heard.append)
    >>> events.emit(JobsClaimed(jobs=2, seconds=0.001))
    >>> events.emit(OutcomesWritten(jobs=2, seconds=0.001))
    >>> heard
    [JobsClaimed(jobs=2, seconds=0.001)]
    """

    def __init__(self) -> None:
        self._subscribers: dict[type[Any], tuple[Callable[[Any], None], ...]] = {}
        self._complained: set[Callable[[Any], None]] = set()

    def subscribe(self, kind: type[E], subscriber: Callable[[E], None]) -> None:
        """Call a function with each event of one kind from now on, after those that came before it."""
        self._subscribers[kind] = (*self._subscribers.get(kind, ()), subscriber)

    def wanted(self, kind: type[Event]) -> bool:
        """Whether anybody listens to this kind: else it need not be made."""
        return kind in self._subscribers

    def emit(self, event: Event) -> None:
        """Tell the subscribers."""
        for subscriber in self._subscribers.get(type(event), ()):
            try:
                subscriber(event)
            except Exception:
                if subscriber not in self._complained:
                    self._complained.add(subscriber)
                    logger.exception(
                        "a subscriber to %s failed; further failures of it are not told", type(event).__name__
                    )
