"""The job that a handler is running in: `current_job()`, for async handlers and for those in threads."""

import json
import logging
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

from asyncq.db.instants import readable
from asyncq.db.jobs import ClaimedRow

__all__ = ["JobFilter", "RunningJob", "current", "current_job"]


class RunningJob:
    """Read, from inside a handler, the job that it runs."""

    # One is made for each run, and most handlers never look at it: it reads the row when it is asked.
    __slots__ = ("_cancel_requested", "_row")

    def __init__(self, row: ClaimedRow) -> None:
        self._row = row
        self._cancel_requested = False

    @property
    def id(self) -> int:
        """The same for all attempts of the job."""
        return self._row.id

    @property
    def queue(self) -> str:
        """The queue it was taken from."""
        return self._row.queue

    @property
    def task(self) -> str:
        """The name of its task, as on the row."""
        return self._row.task

    @property
    def priority(self) -> int:
        """Its priority; higher runs first."""
        return self._row.priority

    @property
    def attempts(self) -> int:
        """The runs so far, this one included."""
        return self._row.attempts

    @property
    def max_attempts(self) -> int:
        """A failure at this many attempts discards the job."""
        return self._row.max_attempts

    @property
    def run_at(self) -> datetime:
        """When it was due."""
        return readable(self._row.run_at)

    @property
    def created_at(self) -> datetime:
        """When it was deferred."""
        return readable(self._row.created_at)

    @property
    def args(self) -> dict[str, Any]:
        """The arguments as plain JSON values, keyed by parameter name."""
        return json.loads(self._row.args)

    @property
    def headers(self) -> dict[str, str]:
        """What travels along beside the arguments: the context of a trace, if whoever deferred it was traced."""
        try:
            found: object = json.loads(self._row.headers or "{}")
        except ValueError:
            return {}
        named: dict[str, object] = found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType] - of JSON
        return {name: value for name, value in named.items() if isinstance(value, str)}

    @property
    def lease(self) -> timedelta:
        """How long a claim or a heartbeat holds the job."""
        return timedelta(seconds=self._row.lease_seconds)

    @property
    def cancel_requested(self) -> bool:
        """Whether the worker told this run to end: it is past its timeout, the worker stops, or the lease was lost.

        An async handler sees a `CancelledError` as well. A handler in a thread cannot be interrupted: a long one
        should look at this from time to time, and return or raise.
        """
        return self._cancel_requested

    def fill(self, args: str) -> None:
        """Set the arguments that the claim left out; for the worker."""
        self._row = self._row._replace(args=args)

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


class JobFilter(logging.Filter):
    """Bind the running job to log records: `job_id`, `queue`, `task` and `attempt`.

    On a handler of `logging` it reaches whatever is logged while a job runs, by libraries too, in its child tasks and
    in threads that took its context along. Other records are left as they are, and so is what `extra` gave.

    >>> import sys
    >>> handler = logging.StreamHandler(sys.stdout)
    >>> handler.addFilter(JobFilter())
    >>> handler.setFormatter(logging.Formatter("%(message)s job=%(job_id)s", defaults={"job_id": "-"}))
    >>> handler.handle(logging.makeLogRecord({"msg": "outside"})) and None
    outside job=-
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Bind it; every record passes."""
        job = current.get(None)
        if job is not None:
            given = vars(record)
            for name, value in (
                ("job_id", job.id), ("queue", job.queue), ("task", job.task), ("attempt", job.attempts),
            ):  # fmt: skip
                given.setdefault(name, value)
        return True
