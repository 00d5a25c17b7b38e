"""The lines that a worker logs about its jobs and itself: one an event, and of many equal failures one together."""

import asyncio
import logging

import anyio

from asyncq.events import Events, JobFinished, JobLeaseLost, JobRescued, WorkerDraining, WorkerStarted, WorkerStopped
from asyncq.failure import type_name
from asyncq.job import JobState
from asyncq.outcome import Cancelled, Completed, Discarded, Released, Retried, Snoozed
from asyncq.running import RunningJob
from asyncq.worker.repeated import Kind, Repeated

__all__ = ["Log"]

logger = logging.getLogger("asyncq.worker")


class Log:
    """Write what happens to `logging`, for people in the message and for programs in `extra`."""

    def __init__(self, events: Events) -> None:
        self._failures = Repeated()
        self._summing_up: asyncio.TimerHandle | None = None
        events.subscribe(JobFinished, self._job_finished)
        events.subscribe(JobLeaseLost, _lease_lost)
        events.subscribe(JobRescued, _rescued)
        events.subscribe(WorkerStarted, _started)
        events.subscribe(WorkerDraining, _draining)
        events.subscribe(WorkerStopped, _stopped)

    def _job_finished(self, event: JobFinished) -> None:
        outcome = event.outcome
        if isinstance(outcome, Completed) and not logger.isEnabledFor(logging.DEBUG):
            return
        if isinstance(outcome, (Retried, Discarded)) and not self._has_line(event):
            return
        _write(event)

    def _has_line(self, event: JobFinished) -> bool:
        """Say whether a failure is logged by itself; if not, it is counted, and summed up in time."""
        if logger.isEnabledFor(logging.DEBUG):
            return True
        kind = Kind(event.job.task, event.error_type or "", final=isinstance(event.outcome, Discarded))
        by_itself = self._failures.met(kind, event.job.id, anyio.current_time())
        if self._summing_up is None:
            self._sum_up_in_time()
        return by_itself

    def sum_up(self, *, at_once: bool = False) -> None:
        """Log what has been counted: of the windows that have ended, or all, when nothing runs any more."""
        if self._summing_up is not None:
            self._summing_up.cancel()
            self._summing_up = None
        for kind, times, last_job, seconds in self._failures.ended(anyio.current_time(), at_once=at_once):
            logger.log(
                logging.ERROR if kind.final else logging.WARNING,
                "%d more failures of %s (%s)%s in the last %.0f s, the last was job %d",
                times, kind.task, kind.error, " for good, discarded," if kind.final else "", max(seconds, 1), last_job,
                extra={"event": "jobs.failed", "task": kind.task, "error": kind.error, "times": times},
            )  # fmt: skip
        self._sum_up_in_time()

    def _sum_up_in_time(self) -> None:
        next_end = self._failures.next_end()
        if next_end is not None:
            self._summing_up = asyncio.get_running_loop().call_at(next_end, self.sum_up)


def _named(job: RunningJob) -> str:
    return f"job {job.id} ({job.task}, attempt {job.attempts} of {job.max_attempts})"


def _extra(job: RunningJob, event: str) -> dict[str, object]:
    return {"event": f"job.{event}", "job_id": job.id, "queue": job.queue, "task": job.task, "attempt": job.attempts}


def _write(event: JobFinished) -> None:
    job, outcome = event.job, event.outcome
    name = _named(job)
    if outcome is None:
        extra = _extra(job, "outcome_dropped")
        logger.warning("%s: ended after its lease was lost, its outcome is dropped", name, extra=extra)
        return
    extra = _extra(job, type_name(outcome).lower()) | {"seconds": round(event.seconds, 6)}
    match outcome:
        case Retried(delay, error):
            last = error.splitlines()[-1]
            logger.warning("%s failed, next run in %.1f s: %s", name, delay, last, extra={**extra, "delay": delay})
            _write_lines(error)
        case Completed():
            logger.debug("%s completed", name, extra=extra)
        case Released():
            logger.info("%s was interrupted, its attempt is given back", name, extra=extra)
        case Snoozed(delay):
            logger.info("%s snoozed, next run in %.1f s", name, delay, extra={**extra, "delay": delay})
        case Cancelled(reason):
            logger.info("%s was cancelled by its handler: %s", name, reason, extra=extra)
        case Discarded(error):
            logger.error("%s failed for good and is discarded: %s", name, error.splitlines()[-1], extra=extra)
            _write_lines(error)


def _write_lines(error: str) -> None:
    """The whole traceback, for whoever develops a handler; it is in the row's `last_error` too."""
    if logger.isEnabledFor(logging.DEBUG):
        for line in error.splitlines():
            logger.debug("    %s", line)


def _lease_lost(event: JobLeaseLost) -> None:
    extra = _extra(event.job, "lease_lost")
    logger.warning("%s: the lease was lost, the handler is told to end", _named(event.job), extra=extra)


def _rescued(event: JobRescued) -> None:
    what = "discarded, its attempts are used up" if event.state is JobState.DISCARDED else "runs again"
    logger.warning(
        "job %d (%s of queue %s) was rescued from worker %s after attempt %d: %s",
        event.job_id, event.task, event.queue, event.worker, event.attempts, what,
        extra={
            "event": "job.rescued", "job_id": event.job_id, "queue": event.queue, "task": event.task,
            "attempt": event.attempts,
        },
    )  # fmt: skip


def _started(event: WorkerStarted) -> None:
    logger.info(
        "worker ready: %s serves %s with %d slots and %d tasks",
        event.worker, ", ".join(event.queues), event.concurrency, len(event.tasks),
        extra={"event": "worker.started", "worker": event.worker},
    )  # fmt: skip


def _draining(event: WorkerDraining) -> None:
    logger.info(
        "stopping: no more claims, running jobs have %g s", event.grace,
        extra={"event": "worker.draining", "worker": event.worker},
    )  # fmt: skip


def _stopped(event: WorkerStopped) -> None:
    extra = {"event": "worker.stopped", "worker": event.worker}
    if event.forced:
        logger.warning("worker stopped at once, as it was told; what ran was given back", extra=extra)
    else:
        logger.info("worker stopped", extra=extra)
