"""A job as data: the row, its state, and the lease under which it is run."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = ["Job", "JobState", "Lease"]


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
