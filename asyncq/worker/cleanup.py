"""Delete dead letters and cancelled jobs whose time of retention is over, of the queues served, in batches."""

import logging
import random
from collections.abc import Mapping
from datetime import timedelta

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup, jittered

__all__ = ["Cleanup"]

logger = logging.getLogger("asyncq.worker")

BATCH = 1_000
SOON_SECONDS = 5.0
"""The first cleanup comes within this time after the start: a worker that lives less than an hour cleans up too."""


class Cleanup:
    """Clean up until ended.

    Args:
        session: the connection for leases.
        schema: of the jobs.
        retention: how long each queue keeps ended jobs.
        every: between two cleanups.
    """

    def __init__(self, session: Session, schema: str, *, retention: Mapping[str, timedelta], every: timedelta) -> None:
        self._session = session
        self._schema = schema
        self._retention = retention
        self._every = every.total_seconds()
        self._wakeup = Wakeup()
        self._ended = False

    def end(self) -> None:
        """Let `run` end."""
        self._ended = True
        self._wakeup.set()

    async def run(self) -> None:
        """Clean up soon, and then at each interval."""
        trouble = Trouble("cleaning up")
        pause = random.uniform(0.0, min(SOON_SECONDS, self._every))  # noqa: S311 - jitter
        while True:
            await self._wakeup.sleep(pause)
            if self._ended:
                return
            try:
                deleted = await jobs.cleanup(self._session, self._schema, retention=self._retention, batch=BATCH)
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                pause = trouble.met(error, anyio.current_time())
                continue
            trouble.over()
            if deleted:
                logger.info("cleanup: deleted %d jobs past their retention", deleted)
            # A full batch: more is waiting, but heartbeats share the connection and come in between.
            pause = 0.05 if deleted >= BATCH else jittered(self._every)
