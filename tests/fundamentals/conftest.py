"""A worker that does all there is to do and then ends."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from asyncq import Queue, Worker, WorkerOptions

Work = Callable[..., Awaitable[None]]


@pytest.fixture
def work(dsn: str) -> Work:
    """Run a worker on these queues until no due job is left."""

    async def work(*queues: Queue, **options: Any) -> None:
        with anyio.fail_after(20):
            await Worker(queues, dsn, WorkerOptions(burst=True, **options)).run()

    return work
