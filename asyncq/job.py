"""A job as data: the row, its state, the lease under which it is run; and what is seen of many of them."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

__all__ = [
    "Activity",
    "Depth",
    "Done",
    "EndedPage",
    "Job",
    "JobEvent",
    "JobEventKind",
    "JobPage",
    "JobState",
    "Lease",
    "QueueStats",
]


class JobState(StrEnum):
    """Tell where a job stands. A job that succeeded has no state: its row is deleted.

    Scheduled jobs and jobs that wait for a retry are `AVAILABLE` with a `run_at` in the future.
    """

    AVAILABLE = "available"
    RUNNING = "running"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"


class Lease(NamedTuple):
    """The right to run one job and to write its outcome: whoever holds the row's present token.

    Args:
        id: the job.
        token: 63 random bits, drawn for the claim. A later claim of the same job has another one.
        seconds: how long a claim or a heartbeat lasts.
    """

    id: int
    token: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Job:
    """Read a job's row, as it was when it was read. Changing it changes nothing in the database.

    Times are aware datetimes of the database's clock; those beyond the years 1 to 9999 are brought to these ends.

    Attributes:
        id, queue, task, priority, attempts, max_attempts: as on the row.
        args_json: the arguments, a JSON object keyed by parameter name; `args` has them read.
        run_at: not started before this time.
        state: where it stands.
        lease: how long a claim or a heartbeat holds it.
        created_at: when it was deferred.
        attempted_at: when its latest run was claimed.
        finished_at: when it was discarded or cancelled.
        last_error: the latest failure, or why it was cancelled.
    """

    id: int
    queue: str
    task: str
    args_json: str
    priority: int
    run_at: datetime
    state: JobState
    attempts: int
    max_attempts: int
    lease: timedelta
    created_at: datetime
    attempted_at: datetime | None
    finished_at: datetime | None
    last_error: str | None

    @property
    def args(self) -> dict[str, Any]:
        """The arguments as plain JSON values, keyed by parameter name."""
        return json.loads(self.args_json)


class JobPage(NamedTuple):
    """Some jobs of a list, the newest first, and where to go on.

    Args:
        jobs: those found, perhaps fewer than asked for, or none.
        before: pass it on to get those that follow; None, there are no more.
    """

    jobs: list[Job]
    before: int | None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Read how many jobs of a queue stand where, as it was when it was read.

    No number goes beyond `LIMIT`, where counting stops: then there are that many or more.

    Attributes:
        queue: its name.
        due: they could run now.
        oldest_due_seconds: how long the first of these has been due; None, if none is.
        scheduled: they wait for a later time, perhaps after a failure.
        running: a worker holds them; among the latest `LIMIT` of all queues.
        discarded, cancelled: they ended so; among the latest `LIMIT` of the queue that ended in either way.
    """

    LIMIT: ClassVar[int] = 100_000

    queue: str
    due: int
    oldest_due_seconds: float | None
    scheduled: int
    running: int
    discarded: int
    cancelled: int


class JobEventKind(StrEnum):
    """Name what happened to a job that is worth to be kept: how a run of it ended, or how it came to a new life."""

    COMPLETED = "completed"
    FAILED = "failed"
    SNOOZED = "snoozed"
    INTERRUPTED = "interrupted"
    RESCUED = "rescued"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"
    REPLAYED = "replayed"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Read one thing that happened to a job, from the history of its queue.

    Attributes:
        job_id: the job, which may be gone.
        at: when it happened.
        event: what happened. After `FAILED`, `SNOOZED`, `INTERRUPTED`, `RESCUED` and `REPLAYED` it runs again.
        queue, task: its.
        attempt: the number of the run.
        created_at: when the job was deferred.
        run_at: when the run was due.
        started_at: when the run was claimed; None, if there was none.
        worker: who ran it.
        error: the failure, or why it was cancelled.
    """

    job_id: int
    at: datetime
    event: JobEventKind
    queue: str
    task: str
    attempt: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    worker: str | None
    error: str | None


class EndedPage(NamedTuple):
    """Some jobs that have ended, the newest first, and where to go on.

    Args:
        events: how they ended; a job that was replayed may have ended more than once.
        before: pass it on to get those that follow; None, there are no more.
    """

    events: list[JobEvent]
    before: int | None


@dataclass(slots=True)
class Done:
    """Count how the runs of one task in one queue ended, and add up their seconds."""

    FIGURES: ClassVar[tuple[str, ...]] = (
        "completed", "failed", "snoozed", "interrupted", "cancelled", "discarded", "waited_seconds", "ran_seconds",
    )  # fmt: skip

    queue: str
    task: str
    completed: int = 0
    failed: int = 0
    snoozed: int = 0
    interrupted: int = 0
    cancelled: int = 0
    discarded: int = 0
    waited_seconds: float = 0.0
    ran_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Activity:
    """Read how the runs of a queue ended within some time.

    Attributes:
        at: when that time began.
        queue: its name.
        completed, failed, snoozed, interrupted, cancelled, discarded: how many ended so; those that failed
            run again.
        waited_seconds: how long all of them had been due when they were claimed, together.
        ran_seconds: how long they ran, together.
    """

    at: datetime
    queue: str
    completed: int
    failed: int
    snoozed: int
    interrupted: int
    cancelled: int
    discarded: int
    waited_seconds: float
    ran_seconds: float


@dataclass(frozen=True, slots=True)
class Depth:
    """Read how many jobs of a queue stood where at a time, as `QueueStats` has it.

    Attributes:
        at: when that was.
        queue, due, oldest_due_seconds, scheduled, running, discarded, cancelled: as there.
    """

    at: datetime
    queue: str
    due: int
    oldest_due_seconds: float | None
    scheduled: int
    running: int
    discarded: int
    cancelled: int
