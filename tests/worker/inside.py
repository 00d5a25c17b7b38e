"""A worker inside the test's own event loop."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from psycopg_pool import AsyncConnectionPool

from asyncq import ExitCode, Queue, Task, Worker, WorkerOptions

__all__ = ["Inside", "recording", "running_worker"]


def recording(queue: Queue) -> tuple[Task[[int], None], list[int]]:
    """Give a queue a task, and the numbers with which it ran."""
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        ran.append(number)

    return task, ran


class Inside:
    """A worker that runs; `code` is how it ended, once it has."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.code: ExitCode | None = None


@asynccontextmanager
async def running_worker(
    queues: Iterable[Queue] | Queue, source: str | AsyncConnectionPool[Any], options: WorkerOptions | None = None
) -> AsyncGenerator[Inside]:
    """Run a worker around the block: ready at its start, stopped gracefully at its end."""
    inside = Inside(Worker([queues] if isinstance(queues, Queue) else queues, source, options))

    async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        inside.code = await inside.worker.run(task_status=task_status)

    async with anyio.create_task_group() as group:
        await group.start(run)
        try:
            yield inside
        finally:
            inside.worker.stop()
