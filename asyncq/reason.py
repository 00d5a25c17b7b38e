"""Why a job does not run: decided from what its row, its queue and the workers show.

The order of the questions is the order in which things can stand in the way. A later feature that holds jobs back asks
here, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from asyncq.job import JobState

__all__ = ["MOST_AHEAD", "Explanation", "JobFacts", "Reason", "WorkerStatus", "explain"]

MOST_AHEAD = 10_000
"""So many jobs before it are counted, of each priority; more are "10,000 or more"."""


class Reason(StrEnum):
    """Name what stands in a job's way."""

    GONE = "gone"
    RUNNING = "running"
    LEASE_OVER = "lease over"
    LATER = "later"
    NO_WORKER = "no worker"
    UNKNOWN_TASK = "unknown task"
    STOPPING = "stopping"
    BEHIND = "behind"
    BUSY = "busy"
    NEXT = "next"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """Read what a worker said of itself, and what it runs.

    Attributes:
        id: host, process id and a random part.
        queues, tasks: what it serves, and what its code has.
        concurrency: how many jobs it runs at once.
        release: the release of asyncq that it runs.
        started_at, seen_at: when it was ready, and when it last said that it lives.
        stopping_at: when it was told to stop.
        alive: whether it said so lately.
        running: how many jobs it holds.
    """

    id: str
    queues: Sequence[str]
    tasks: Sequence[str]
    concurrency: int
    release: str
    started_at: datetime
    seen_at: datetime
    stopping_at: datetime | None
    alive: bool
    running: int


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the row of a job says, without its arguments, and how many due jobs are taken before it.

    `now` is the database's clock; `error` the last line of the latest failure, as far as the role may read it.
    """

    id: int
    queue: str
    task: str
    priority: int
    attempts: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    attempted_at: datetime | None
    leased_until: datetime | None
    finished_at: datetime | None
    locked_by: str | None
    now: datetime
    state: JobState
    ahead: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Say why a job does not run.

    Attributes:
        job_id: the job.
        reason: what stands in its way, for programs.
        text: the same for people, a sentence or two.
        advice: what can be done, if something can.
        facts: its row; None when there is none.
        workers: those that could run it, alive and dead, for `RUNNING` the one that does.
    """

    job_id: int
    reason: Reason
    text: str
    advice: str | None
    facts: JobFacts | None
    workers: Sequence[WorkerStatus] = ()

    def __str__(self) -> str:
        return self.text if self.advice is None else f"{self.text} {self.advice}"


def explain(job_id: int, job: JobFacts | None, workers: Sequence[WorkerStatus]) -> Explanation:
    """Decide.

    >>> explain(17, None, []).reason
    <Reason.GONE: 'gone'>
    """
    if job is None:
        return Explanation(
            job_id,
            Reason.GONE,
            "There is no such job.",
            "It succeeded, which deletes it; or its transaction was rolled back or has not committed; or its time of"
            " retention is over.",
            None,
        )
    match job.state:
        case JobState.RUNNING:
            return _running(job, [each for each in workers if each.id == job.locked_by], workers)
        case JobState.AVAILABLE:
            return _waiting(job, workers)
        case JobState.CANCELLED | JobState.DISCARDED:
            return _ended(job)


def _ended(job: JobFacts) -> Explanation:
    when = f"{_since(job.now, job.finished_at)} ago"
    if job.state is JobState.CANCELLED:
        text = f"It was cancelled {when}{_with(job.error)}."
    else:
        text = f"It was discarded {when}, after {_attempts(job)}{_with(job.error)}."
    reason = Reason.CANCELLED if job.state is JobState.CANCELLED else Reason.DISCARDED
    return Explanation(job.id, reason, text, f"'asyncq replay' puts it back: queue {job.queue}, id {job.id}.", job)


def _running(job: JobFacts, holder: Sequence[WorkerStatus], workers: Sequence[WorkerStatus]) -> Explanation:
    text = f"It has been running for {_since(job.now, job.attempted_at)}, attempt {job.attempts} of {job.max_attempts},"
    text += f" in worker {job.locked_by}."
    if job.leased_until is not None and job.leased_until < job.now:
        text += (
            f" Its lease ran out {_since(job.now, job.leased_until)} ago: the worker died, hung or lost the database."
        )
        takes = any(each.alive for each in workers)
        advice = "A worker takes it back soon." if takes else "No worker is alive to take it back: start one."
        return Explanation(job.id, Reason.LEASE_OVER, text, advice, job, holder)
    advice = None
    if not any(each.alive for each in holder):
        text += " That worker has not said for a while that it lives, but its lease has not run out."
        advice = (
            "If it died, the job runs again when the lease is over; if a handler blocks its event loop, it goes on."
        )
    return Explanation(job.id, Reason.RUNNING, text, advice, job, holder)


def _waiting(job: JobFacts, workers: Sequence[WorkerStatus]) -> Explanation:
    if job.run_at > job.now:
        at = job.run_at.isoformat(sep=" ", timespec="seconds")
        text = f"It is due in {_length(job.run_at - job.now)}, at {at}."
        if job.attempts:
            text += f" It failed before: {_attempts(job)} of {job.max_attempts}{_with(job.error)}."
        return Explanation(job.id, Reason.LATER, text, None, job)
    due = f"It has been due for {_since(job.now, job.run_at)}"
    serving = [each for each in workers if job.queue in each.queues]
    alive = [each for each in serving if each.alive]
    if not alive:
        text = f"{due}, and no worker that is alive serves its queue, {job.queue}."
        return Explanation(job.id, Reason.NO_WORKER, text, "Start one.", job, serving)
    knowing = [each for each in alive if job.task in each.tasks]
    if not knowing:
        text = f"{due}, and no worker of its queue, {job.queue}, has a task {job.task}."
        advice = "Was it renamed or removed, or is the code that has it not deployed? A task's aliases= keep old names."
        return Explanation(job.id, Reason.UNKNOWN_TASK, text, advice, job, alive)
    claiming = [each for each in knowing if each.stopping_at is None]
    if not claiming:
        text = f"{due}, and all workers of its queue, {job.queue}, that have its task are stopping."
        return Explanation(job.id, Reason.STOPPING, text, "Start another one.", job, knowing)
    slots, running = sum(each.concurrency for each in claiming), sum(each.running for each in claiming)
    full = running >= slots
    load = f"{running} of {slots} slots of its workers are taken"
    if job.ahead:
        most = " or more" if job.ahead >= MOST_AHEAD else ""
        text = f"{due}, and waits behind {job.ahead:,}{most} due jobs of its queue, {job.queue}; {load}."
        return Explanation(job.id, Reason.BEHIND, text, "More workers or slots help." if full else None, job, claiming)
    if full:
        text = f"{due}, and is the next of its queue, {job.queue}, but {load}."
        return Explanation(job.id, Reason.BUSY, text, "More workers or slots help.", job, claiming)
    text = f"{due}, and is the next of its queue, {job.queue}; {load}."
    advice = (
        "If it does not start within seconds, an open transaction holds its row, or a handler blocks the event loop."
    )
    return Explanation(job.id, Reason.NEXT, text, advice, job, claiming)


def _attempts(job: JobFacts) -> str:
    return f"{job.attempts} attempt{'' if job.attempts == 1 else 's'}"


def _with(error: str | None) -> str:
    return f": {error}" if error else ""


def _since(now: datetime, moment: datetime | None) -> str:
    return "an unknown time" if moment is None else _length(now - moment)


def _length(length: timedelta) -> str:
    """Give a length of time in the unit that suits it.

    >>> [_length(timedelta(seconds=seconds)) for seconds in (0.2, 90, 4000, 90_000)]
    ['0 s', '90 s', '66 min', '25 h']
    """
    seconds = max(length.total_seconds(), 0.0)
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 72)):
        if seconds < size * most:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds // 86400:,.0f} days"
