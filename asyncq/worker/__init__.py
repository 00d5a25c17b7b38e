"""Time and concurrency: the loops of a worker. No SQL and no policy of the queue's own."""

from asyncq.worker.worker import ExitCode, Worker, WorkerOptions

__all__ = ["ExitCode", "Worker", "WorkerOptions"]
