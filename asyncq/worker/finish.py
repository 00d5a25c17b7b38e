"""Write outcomes, in batches, as soon as the previous batch is written.

What comes in are leases with what is to become of their rows; nothing goes out but the writes. An outcome is kept
until it is written or its lease turns out to be lost: through outages, and while somebody's open transaction holds the
row. Its lease is kept alive meanwhile.

Successes are written along with the next claim when one is about to be sent, in the same statement and transaction.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.events import Events, OutcomesWritten
from asyncq.job import Lease
from asyncq.outcome import COMPLETED, Change, Completed, change
from asyncq.worker.trouble import Trouble, one_line, refuses_data
from asyncq.worker.wakeup import Wakeup

__all__ = ["Finisher"]

logger = logging.getLogger("asyncq.worker")

BATCH = 1_000
BUSY_SECONDS = 0.1
"""How long a row that somebody else's transaction holds is left alone before the next try."""

LONGEST_BUSY_SECONDS = 2.0
"""How long at most."""

Ended = tuple[Lease, Change]


class Finisher:
    """Keep outcomes until they are written.

    Args:
        session: the connection for claims and outcomes.
        schema: of the jobs.
        events: told of each statement.
        recorded: whether there are queues that keep history.
        written: called when outcomes were written.
        carrier: says whether a claim is under way or about to be, which takes successes along.
    """

    def __init__(
        self,
        session: Session,
        schema: str,
        *,
        events: Events,
        recorded: bool,
        written: Callable[[], None],
        carrier: Callable[[], bool],
    ) -> None:
        self._session = session
        self._schema = schema
        self._events = events
        self._recorded = recorded
        self._written = written
        self._carrier = carrier
        self._succeeded: list[Lease] = []
        self._others: list[Ended] = []
        # To be written one by one: the database refused to write them, or one of them, together.
        self._apart: deque[Ended] = deque()
        self._busy: list[Ended] = []
        # What statements that have not come back are writing.
        self._under_way: list[Sequence[Ended]] = []
        self._carried: list[list[Lease]] = []
        self._busy_until = 0.0
        self._busy_seconds = BUSY_SECONDS / 2
        self._reported: set[Lease] = set()
        self._wakeup = Wakeup()
        self._closing = False

    def put(self, lease: Lease, change: Change) -> None:
        """Take an outcome; it is written as soon as may be."""
        if change.state == COMPLETED:
            self._succeeded.append(lease)
        else:
            self._others.append((lease, change))
        self._wakeup.set()

    def __len__(self) -> int:
        kept = (self._succeeded, self._others, self._apart, self._busy, *self._under_way, *self._carried)
        return sum(map(len, kept))

    def leases(self) -> list[Lease]:
        """The leases to be kept until their outcomes are written."""
        leases = [lease for kept in (self._succeeded, *self._carried) for lease in kept]
        leases += [lease for kept in (self._others, self._apart, self._busy, *self._under_way) for lease, _ in kept]
        return leases

    def ids(self) -> list[int]:
        """The jobs whose outcomes are not written."""
        return sorted(lease.id for lease in self.leases())

    def take(self) -> list[Lease]:
        """Give successes to be written along with something else; they come back by `settle` or `give_back`."""
        batch, self._succeeded = self._succeeded[:BATCH], self._succeeded[BATCH:]
        self._carried.append(batch)
        return batch

    def settle(self, batch: list[Lease], unwritten: jobs.Unwritten) -> None:
        """Note that what was taken is written, all but these."""
        self._carried.remove(batch)
        self._settle(unwritten, [(lease, _COMPLETED) for lease in batch] if unwritten else [])

    def give_back(self, batch: list[Lease], error: BaseException) -> None:
        """Take back what was taken and, for all that is known, not written."""
        self._carried.remove(batch)
        if refuses_data(error):
            self._apart.extend((lease, _COMPLETED) for lease in batch)
        else:
            self._succeeded[:0] = batch
        self._wakeup.set()

    def wake(self) -> None:
        """Write now what nobody is going to take along."""
        if self._succeeded:
            self._wakeup.set()

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
                self._apart.extend(self._busy)
                self._busy.clear()
            batch = self._next_batch()
            if not batch:
                await self._wakeup.sleep(self._busy_until - now if self._busy else None)
                continue
            try:
                await self._write(batch)
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                # Not woken by new outcomes: they do not bring the database back.
                await anyio.sleep(trouble.met(error, anyio.current_time()))
                continue
            trouble.over()
            self._written()

    def _next_batch(self) -> list[Ended]:
        """Successes, or other outcomes: a batch is one statement, and is written or not as a whole."""
        if self._apart:
            return [self._apart.popleft()]
        if self._others:
            batch, self._others = self._others[:BATCH], self._others[BATCH:]
            return batch
        if self._carrier():
            return []
        succeeded, self._succeeded = self._succeeded[:BATCH], self._succeeded[BATCH:]
        return [(lease, _COMPLETED) for lease in succeeded]

    async def _write(self, batch: list[Ended]) -> None:
        self._under_way.append(batch)
        began = anyio.current_time()
        try:
            if batch[0][1].state == COMPLETED:
                unwritten = await jobs.complete(
                    self._session, self._schema, [lease for lease, _ in batch], recorded=self._recorded
                )
            else:
                unwritten = await jobs.finish(self._session, self._schema, batch)
        except BaseException as error:
            if not refuses_data(error):
                for lease, change in batch:
                    self.put(lease, change)
                raise
            if len(batch) == 1:
                self._refused(*batch[0], error)
            else:
                # One row that the database refuses must not keep the others from being written.
                self._apart.extend(batch)
        else:
            self._events.emit(OutcomesWritten(len(batch), anyio.current_time() - began))
            self._settle(unwritten, batch)
        finally:
            self._under_way.remove(batch)

    def _settle(self, unwritten: jobs.Unwritten, batch: list[Ended]) -> None:
        if not unwritten:
            return
        for ended in batch:
            lease = ended[0]
            busy = unwritten.get((lease.id, lease.token))
            if busy:
                self._later(ended)
            elif busy is not None:
                logger.warning("job %d: its lease was lost before its outcome was written, which is dropped", lease.id)

    def _refused(self, lease: Lease, change: Change, error: BaseException) -> None:
        plain = (change.error or "").encode("ascii", "backslashreplace").decode()
        if change.error and plain != change.error:
            # A text that this database's encoding cannot hold.
            self._apart.append((lease, change._replace(error=plain)))
            return
        if lease not in self._reported:
            self._reported.add(lease)
            logger.error("job %d: the database refuses its outcome, it is tried again: %s", lease.id, one_line(error))
        self._later((lease, change))

    def _later(self, ended: Ended) -> None:
        """Leave a row alone for a moment, longer with each vain try."""
        self._busy.append(ended)
        self._busy_seconds = min(self._busy_seconds * 2.0, LONGEST_BUSY_SECONDS)
        self._busy_until = anyio.current_time() + self._busy_seconds


_COMPLETED = change(Completed())
