"""Time and concurrency: the loops of a worker. No SQL and no policy of the queue's own."""

from asyncq.worker.options import ExitCode, WorkerOptions
from asyncq.worker.worker import Worker

__all__ = ["ExitCode", "Worker", "WorkerOptions"]
