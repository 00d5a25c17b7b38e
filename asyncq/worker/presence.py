"""Say that this worker lives, which queues it serves, which tasks it knows and what it has done: for operators.

It is said on the connection that listens, twice a minute, and there it is the sign of life of that connection too. What
goes wrong with it is logged once: no job depends on it.
"""

import logging
from collections.abc import Sequence

import anyio
import psycopg

from asyncq.db import workers
from asyncq.db.workers import Fetches
from asyncq.release import __version__
from asyncq.worker.tally import Tally
from asyncq.worker.trouble import one_line

__all__ = ["Presence"]

logger = logging.getLogger("asyncq.worker")


class Presence:
    """Keep one worker's row.

    Args:
        schema: of the jobs.
        worker: its id.
        queues: those served.
        tasks: known names.
        concurrency: how many jobs it runs at once.
        tally: what it has done.
    """

    def __init__(
        self, schema: str, *, worker: str, queues: Sequence[str], tasks: Sequence[str], concurrency: int, tally: Tally
    ) -> None:
        self._schema = schema
        self._worker = worker
        self._queues = queues
        self._tasks = tasks
        self._concurrency = concurrency
        self._tally = tally
        self._stopping = False
        self._complained = False
        self._left = False
        # Of two connections: what the one is about to write must not come after the other has removed it.
        self._turn = anyio.Lock()
        self.news = False
        """Whether something is to be said before its time."""

    def stop(self) -> None:
        """Note that the worker was told to stop."""
        if not self._stopping:
            self._stopping = self.news = True

    async def report(self, via: Fetches) -> None:
        """Say it.

        Raises:
            psycopg.Error: the connection is lost, or its server cannot be written to.
        """
        async with self._turn:
            self.news = False
            if self._left:
                return
            try:
                await self._write(via)
            except psycopg.Error as error:
                if error.sqlstate is None or error.sqlstate[:2] in ("08", "25", "57"):
                    raise
                if not self._complained:
                    self._complained = True
                    logger.warning("this worker is not shown among the workers: %s", one_line(error))

    async def _write(self, via: Fetches) -> None:
        done = self._tally.take()
        try:
            known = await workers.seen(via, self._schema, worker=self._worker, stopping=self._stopping, done=done)
        except BaseException:
            self._tally.give_back(done)
            raise
        if not known:
            await workers.register(
                via,
                self._schema,
                worker=self._worker,
                queues=self._queues,
                tasks=self._tasks,
                concurrency=self._concurrency,
                release=__version__,
            )

    async def leave(self, via: Fetches) -> None:
        """Remove the row, if that can be done; if not, its time is seen to pass."""
        async with self._turn:
            self._left = True
            try:
                await workers.leave(via, self._schema, worker=self._worker, done=self._tally.take())
            except (psycopg.Error, OSError) as error:
                logger.debug("this worker is still shown among the workers: %s", one_line(error))
