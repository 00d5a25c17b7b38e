"""The job that a handler is running in: `current_job()`, for async handlers and for those in threads."""

import json
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

__all__ = ["RunningJob", "current", "current_job"]


class RunningJob:
    """Read, from inside a handler, the job that it runs.

    Attributes:
        id: of the job; the same for all its attempts.
        queue, task, priority, max_attempts, run_at, created_at: as on the row.
        attempts: the runs so far, this one included.
    """

    __slots__ = (
        "_args",
        "_cancel_requested",
        "_lease_seconds",
        "attempts",
        "created_at",
        "id",
        "max_attempts",
        "priority",
        "queue",
        "run_at",
        "task",
    )

    def __init__(
        self,
        *,
        id: int,
        queue: str,
        task: str,
        args: str,
        priority: int,
        attempts: int,
        max_attempts: int,
        lease_seconds: float,
        run_at: datetime,
        created_at: datetime,
    ) -> None:
        self.id = id
        self.queue = queue
        self.task = task
        self.priority = priority
        self.attempts = attempts
        self.max_attempts = max_attempts
        self.run_at = run_at
        self.created_at = created_at
        self._args = args
        self._lease_seconds = lease_seconds
        self._cancel_requested = False

    @property
    def args(self) -> dict[str, Any]:
        """The arguments as plain JSON values, keyed by parameter name."""
        return json.loads(self._args)

    @property
    def lease(self) -> timedelta:
        """How long a claim or a heartbeat holds the job."""
        return timedelta(seconds=self._lease_seconds)

    @property
    def cancel_requested(self) -> bool:
        """Whether the worker told this run to end: it is past its timeout, the worker stops, or the lease was lost.

        An async handler sees a `CancelledError` as well. A handler in a thread cannot be interrupted: a long one
        should look at this from time to time, and return or raise.
        """
        return self._cancel_requested

    def request_cancel(self) -> None:
        """Set `cancel_requested`; for the worker."""
        self._cancel_requested = True


current: ContextVar[RunningJob] = ContextVar("asyncq_current_job")


def current_job() -> RunningJob:
    """Give the job that the calling handler runs in.

    Raises:
        RuntimeError: nothing is running: the function was called by hand, for instance in a unit test.

    >>> current_job()
    Traceback (most recent call last):
    ...
    RuntimeError: current_job() is for handlers that a worker runs; no job is running here
    """
    try:
        return current.get()
    except LookupError:
        raise RuntimeError("current_job() is for handlers that a worker runs; no job is running here") from None
