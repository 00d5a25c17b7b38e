"""Write outcomes, in batches, as soon as the previous batch is written.

What comes in are leases with what is to become of their rows; nothing goes out but the writes. An outcome is kept
until it is written or its lease turns out to be lost: through outages, and while somebody's open transaction holds the
row. Its lease is kept alive meanwhile.
"""

import logging
from collections.abc import Callable
from itertools import islice

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.job import Lease
from asyncq.outcome import COMPLETED, Change
from asyncq.worker.trouble import Trouble, one_line, refuses_data
from asyncq.worker.wakeup import Wakeup

__all__ = ["Finisher"]

logger = logging.getLogger("asyncq.worker")

BATCH = 1_000
BUSY_SECONDS = 0.1
"""How long a row that somebody else's transaction holds is left alone before the next try."""

LONGEST_BUSY_SECONDS = 2.0
"""How long at most."""

Key = tuple[int, int]
Ended = tuple[Lease, Change]


class Finisher:
    """Keep outcomes until they are written.

    Args:
        session: the connection for claims and outcomes.
        schema: of the jobs.
        written: called when outcomes were written.
    """

    def __init__(self, session: Session, schema: str, *, written: Callable[[], None]) -> None:
        self._session = session
        self._schema = schema
        self._written = written
        self._pending: dict[Key, Ended] = {}
        self._busy: dict[Key, Ended] = {}
        self._busy_until = 0.0
        self._busy_seconds = BUSY_SECONDS / 2
        self._reported: set[Key] = set()
        self._wakeup = Wakeup()
        self._closing = False

    def put(self, lease: Lease, change: Change) -> None:
        """Take an outcome; it is written as soon as may be."""
        self._pending[lease.id, lease.token] = (lease, change)
        self._wakeup.set()

    def __len__(self) -> int:
        return len(self._pending) + len(self._busy)

    def leases(self) -> list[Lease]:
        """The leases to be kept until their outcomes are written."""
        return [lease for kept in (self._pending, self._busy) for lease, _ in kept.values()]

    def ids(self) -> list[int]:
        """The jobs whose outcomes are not written."""
        return sorted(lease.id for lease in self.leases())

    def close(self) -> None:
        """Let `run` end once everything is written."""
        self._closing = True
        self._wakeup.set()

    async def run(self) -> None:
        """Write until closed and empty."""
        trouble = Trouble("writing outcomes")
        while not (self._closing and len(self) == 0):
            now = anyio.current_time()
            if len(self) == 0:
                self._busy_seconds = BUSY_SECONDS / 2
                self._reported.clear()
            if self._busy and now >= self._busy_until:
                self._pending.update(self._busy)
                self._busy.clear()
            if not self._pending:
                await self._wakeup.sleep(self._busy_until - now if self._busy else None)
                continue
            batch = self._next_batch()
            try:
                await self._write(batch)
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                # Not woken by new outcomes: they do not bring the database back.
                await anyio.sleep(trouble.met(error, anyio.current_time()))
                continue
            trouble.over()
            self._written()

    def _next_batch(self) -> dict[Key, Ended]:
        """Successes, or other outcomes: a batch is one statement, and is written or not as a whole."""
        first = next(iter(self._pending.values()))
        succeeded = first[1].state == COMPLETED
        same = (item for item in self._pending.items() if (item[1][1].state == COMPLETED) is succeeded)
        return dict(islice(same, BATCH))

    async def _write(self, batch: dict[Key, Ended]) -> None:
        outcomes = list(batch.values())
        try:
            if outcomes[0][1].state == COMPLETED:
                unwritten = await jobs.complete(self._session, self._schema, [lease for lease, _ in outcomes])
            else:
                unwritten = await jobs.finish(self._session, self._schema, outcomes)
        except Exception as error:
            if not refuses_data(error):
                raise
            if len(batch) == 1:
                self._refused(*batch.popitem(), error)
                return
            # One row that the database refuses must not keep the others from being written.
            for key, ended in batch.items():
                await self._write({key: ended})
            return
        for key, ended in batch.items():
            # Given back and claimed again, the same id comes with another token: another key.
            del self._pending[key]
            busy = unwritten.get(key)
            if busy:
                self._later(key, ended)
            elif busy is not None:
                logger.warning("job %d: its lease was lost before its outcome was written, which is dropped", key[0])

    def _refused(self, key: Key, ended: Ended, error: Exception) -> None:
        lease, change = ended
        plain = (change.error or "").encode("ascii", "backslashreplace").decode()
        if change.error and plain != change.error:
            # A text that this database's encoding cannot hold.
            self._pending[key] = (lease, change._replace(error=plain))
            return
        if key not in self._reported:
            self._reported.add(key)
            logger.error("job %d: the database refuses its outcome, it is tried again: %s", lease.id, one_line(error))
        del self._pending[key]
        self._later(key, ended)

    def _later(self, key: Key, ended: Ended) -> None:
        """Leave a row alone for a moment, longer with each vain try."""
        self._busy[key] = ended
        self._busy_seconds = min(self._busy_seconds * 2.0, LONGEST_BUSY_SECONDS)
        self._busy_until = anyio.current_time() + self._busy_seconds
