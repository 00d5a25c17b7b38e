"""Take back the jobs of dead workers, whoever's they were: from what their rows say alone.

Each worker looks when the earliest lease it saw runs out, and at least once per shortest lease of its queues; an
advisory lock lets one at a time act.

After an outage the workers that live extend their leases before anybody takes them for dead: see
`asyncq.worker.contact`. So that it knows of none, it also looks shortly before the lease that it saw ends.

It looks at what was claimed since the first run that is still going on, so that the entries of finished runs, which an
old snapshot may keep in the index, are not walked each time. How it knows that nothing comes up before that, from a
transaction that is still open, is told in `asyncq.worker.lanes`: a claim's time too is read under its lock.
"""

from collections.abc import Callable

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.db.instants import START
from asyncq.events import Events, JobRescued
from asyncq.job import JobState
from asyncq.worker.contact import Contact
from asyncq.worker.heartbeat import interval
from asyncq.worker.horizon import Past
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup

__all__ = ["Rescuer"]

BATCH = 500
MARGIN_SECONDS = 0.05
"""Looked this much after a lease ends: earlier by a hair, the look would be in vain."""

WHOLE_SECONDS = 600.0
"""How often all that is running is looked at, whenever it was claimed, for what was put there by hand."""

WHOLE_FACTOR = 200.0
"""Not before so many times as long as the last of these looks took: entries that an old snapshot keeps are read too."""

HELD_SECONDS = 1.0
"""How long a row whose lease ran out, but that somebody holds, is left alone."""


class Rescuer:
    """Rescue until ended.

    Args:
        session: the connection for leases.
        schema: of the jobs.
        lease_seconds: the shortest lease that jobs may have, as far as is known here.
        rescued: takes the queue of jobs that were put back.
        looked: called after each look.
    """

    def __init__(
        self,
        session: Session,
        schema: str,
        *,
        lease_seconds: float,
        events: Events | None = None,
        rescued: Callable[[str], None] = lambda _: None,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = session
        self._schema = schema
        self._lease_seconds = lease_seconds
        self._events = events or Events()
        self._rescued = rescued
        self._looked = looked
        self.settled = False
        """Whether the leases that had run out at the first look were taken back, as far as that could be."""
        self._ahead = interval(lease_seconds) / 2
        self._wakeup = Wakeup()
        self._ended = False
        # On the database's clock: nothing claimed before that is running.
        self._since = START.run_at
        self._past = Past()
        self._contact = Contact(interval(lease_seconds))
        self._connected_at: float | None = None
        self._whole_at = 0.0

    def end(self) -> None:
        """Let `run` end."""
        self._ended = True
        self._wakeup.set()

    async def run(self) -> None:
        """Look, rescue, and sleep until the next lease ends."""
        trouble = Trouble("rescuing")
        while not self._ended:
            try:
                pause = await self._rescue()
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                pause = trouble.met(error, anyio.current_time())
            else:
                trouble.over()
            await self._wakeup.sleep(pause)

    async def _rescue(self) -> float:
        """Gives the seconds until the next look."""
        await self._session.ensure_connected()
        connected_at = self._session.connected_at
        assert connected_at is not None
        now = anyio.current_time()
        if connected_at != self._connected_at or now >= self._whole_at:
            # Perhaps another server, with another clock.
            self._since, self._past = START.run_at, Past()
            self._whole_at = now + WHOLE_SECONDS
        if connected_at != self._connected_at:
            self._connected_at = connected_at
            self._contact.lost()
        if (missing := self._contact.missing(now)) > 0:
            return missing
        whole = self._since == START.run_at
        found = await jobs.rescue(
            self._session,
            self._schema,
            batch=BATCH,
            since=self._since,
            awaited=self._past.awaited,
            not_after=self._sent,
        )
        answered_at = anyio.current_time()
        ended = found.next_seconds is not None and found.next_seconds <= 0
        self._contact.answered(found.answered_at, answered_at, late=found.late, ended=ended)
        if whole:
            self._whole_at = max(self._whole_at, now + WHOLE_FACTOR * (answered_at - now))
        self._move(found)
        for job_id, queue, task, state, attempts, worker in found.rescued:
            self._events.emit(JobRescued(job_id, queue, task, state, attempts, worker))
        for queue in {queue for _, queue, _, state, *_ in found.rescued if state is JobState.AVAILABLE}:
            self._rescued(queue)
        more = len(found.rescued) == BATCH
        self.settled = self.settled or not (more or (found.late and ended))
        self._looked()
        return 0.0 if more else self._pause(found.next_seconds)

    def _sent(self) -> int:
        if self._session.connected_at != self._connected_at:
            return START.run_at  # another loop has lost the connection, and opened another
        return self._contact.sent(anyio.current_time())

    def _pause(self, next_seconds: float | None) -> float:
        if next_seconds is None:
            return self._lease_seconds
        if next_seconds <= 0:
            # Held by another rescuer, or by somebody's open transaction.
            return min(HELD_SECONDS, self._lease_seconds)
        next_end = next_seconds + MARGIN_SECONDS
        return min(next_end if next_end <= self._contact.needed else next_seconds - self._ahead, self._lease_seconds)

    def _move(self, found: jobs.Rescue) -> None:
        """Look at less the next time."""
        approved = self._past.approved
        self._since = max(self._since, approved if found.first is None else min(found.first, approved))
        if not self._past.note(found.looked_at, found.writers, over=found.over):
            self._whole_at = 0.0
