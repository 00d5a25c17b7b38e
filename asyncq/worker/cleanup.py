"""Delete what is over age, in batches: dead letters and cancelled jobs of the queues served, history, and activity."""

import logging
import random
from collections.abc import Mapping
from datetime import timedelta

import anyio

from asyncq.db import activity, history, jobs
from asyncq.db.connection import Session
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup, jittered

__all__ = ["Cleanup"]

logger = logging.getLogger("asyncq.worker")

BATCH = 1_000
AGAIN_SECONDS = 0.05
LOCKED_SECONDS = 10.0
SOON_SECONDS = 5.0
"""The first cleanup comes within this time after the start: a worker that lives less than an hour cleans up too."""


class Cleanup:
    """Clean up until ended.

    Args:
        session: the connection for leases.
        schema: of the jobs.
        retention: how long each queue keeps ended jobs.
        every: between two cleanups.
        recorded: whether there are queues that keep history.
    """

    def __init__(
        self,
        session: Session,
        schema: str,
        *,
        retention: Mapping[str, timedelta],
        every: timedelta,
        recorded: bool,
    ) -> None:
        self._session = session
        self._schema = schema
        self._retention = retention
        self._every = every.total_seconds()
        self._recorded = recorded
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
                pause = await self._clean_up()
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                pause = trouble.met(error, anyio.current_time())
                continue
            trouble.over()

    async def _clean_up(self) -> float:
        """Gives the seconds until the next time."""
        deleted = await jobs.cleanup(self._session, self._schema, retention=self._retention, batch=BATCH)
        if deleted:
            logger.info("cleanup: deleted %d jobs past their retention", deleted)
        if deleted >= BATCH:
            # More is waiting, but heartbeats share the connection and come in between.
            return AGAIN_SECONDS
        forgotten = await activity.forget(self._session, self._schema, batch=BATCH)
        if forgotten >= BATCH:
            return AGAIN_SECONDS
        if self._recorded and await history.keep(self._session, self._schema):
            # Somebody reads the history, and will have done so at some time.
            return min(LOCKED_SECONDS, self._every)
        return jittered(self._every)
