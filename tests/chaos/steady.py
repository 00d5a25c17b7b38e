"""The application of `tests.chaos.throughput`: jobs that wait for a moment, and such that use up a pool."""

import asyncio
import os

from psycopg_pool import AsyncConnectionPool

from asyncq import Queue

work = Queue("steady")
pool = AsyncConnectionPool(os.environ.get("ASYNCQ_DSN", ""), min_size=1, max_size=2, timeout=60.0, open=False)


@work.task
async def wait() -> None:
    """What most handlers do."""
    await asyncio.sleep(0.02)


@work.task
async def hog(seconds: float) -> None:
    """Keep a connection of the handlers' pool, and want a second one."""
    await pool.open()
    async with pool.connection():
        await asyncio.sleep(seconds)
        async with pool.connection():
            pass
