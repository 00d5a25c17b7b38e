"""asyncq: an asyncio-native job queue on plain PostgreSQL.

A job's way, in ten stops:

1. `asyncq.queue` registers the handler as an `asyncq.task.Task`.
2. `Task.defer` is called on the caller's connection, inside the caller's transaction.
3. `asyncq.args` validates the arguments against the handler's signature.
4. `asyncq.db.defer` runs `sql/queries/jobs/defer.sql`: a row, and a notification at commit, unless no idle worker needs
   it, which `asyncq.worker.quiet` decides.
5. `asyncq.db.listen` hears it and `asyncq.worker.wakeup` wakes the worker.
6. `asyncq.worker.claim` takes due rows with `claim.sql`, under a fresh lease token, and counts the attempt.
7. `asyncq.worker.execute` runs the handler, outside any transaction; `asyncq.worker.heartbeat` keeps the lease.
8. `asyncq.outcome` decides what the end of the run means.
9. `asyncq.worker.finish` writes it, if the lease is still held: success deletes the row with `complete.sql`, all else
   puts it into its next state with `finish.sql`.
10. What a dead worker left behind, `asyncq.worker.rescue` takes back; what failed for good waits as a dead letter
    for `Queue.replay` or, in the end, `asyncq.worker.cleanup`.
"""

from asyncq.errors import (
    AsyncqError,
    Cancel,
    ConfigurationError,
    DeferError,
    InvalidArgsError,
    JobSignal,
    Retry,
    SchemaOutdatedError,
    Snooze,
    TaskAlreadyRegisteredError,
    UnknownTaskError,
)
from asyncq.job import EndedPage, Job, JobEvent, JobEventKind, JobPage, JobState, QueueStats
from asyncq.queue import Queue
from asyncq.reason import Explanation, Reason
from asyncq.release import __version__
from asyncq.retry import RetryPolicy
from asyncq.running import JobFilter, RunningJob, current_job
from asyncq.task import BoundTask, Deferred, SyncTask, Task, TaskArgs
from asyncq.worker import ExitCode, Worker, WorkerOptions

__all__ = [
    "AsyncqError",
    "BoundTask",
    "Cancel",
    "ConfigurationError",
    "DeferError",
    "Deferred",
    "EndedPage",
    "ExitCode",
    "Explanation",
    "InvalidArgsError",
    "Job",
    "JobEvent",
    "JobEventKind",
    "JobFilter",
    "JobPage",
    "JobSignal",
    "JobState",
    "Queue",
    "QueueStats",
    "Reason",
    "Retry",
    "RetryPolicy",
    "RunningJob",
    "SchemaOutdatedError",
    "Snooze",
    "SyncTask",
    "Task",
    "TaskAlreadyRegisteredError",
    "TaskArgs",
    "UnknownTaskError",
    "Worker",
    "WorkerOptions",
    "__version__",
    "current_job",
]
