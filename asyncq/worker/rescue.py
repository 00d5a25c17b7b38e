"""Take back the jobs of dead workers, whoever's they were: from what their rows say alone.

Each worker looks when the earliest lease it saw runs out, and at least once per shortest lease of its queues; an
advisory lock lets one at a time act. After a loss of contact it first waits one heartbeat interval, so that after an
outage of the database the workers that live extend their leases before anybody takes them for dead.

It looks at what was claimed since the first run that is still going on, so that the entries of finished runs, which an
old snapshot may keep in the index, are not walked each time. How it knows that nothing comes up before that, from a
transaction that is still open, is told in `asyncq.worker.lanes`: a claim's time too is read under its lock.
"""

import logging

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.db.instants import START
from asyncq.job import JobState
from asyncq.worker.heartbeat import interval
from asyncq.worker.horizon import Past
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup

__all__ = ["Rescuer"]

logger = logging.getLogger("asyncq.worker")

BATCH = 500
MARGIN_SECONDS = 0.05
"""Looked this much after a lease ends: earlier by a hair, the look would be in vain."""

WHOLE_SECONDS = 600.0
"""How often all that is running is looked at, whenever it was claimed, for what was put there by hand."""

WHOLE_FACTOR = 200.0
"""Not before so many times as long as the last of these looks took: entries that an old snapshot keeps are read too."""

HELD_SECONDS = 1.0
"""How long a row whose lease ran out, but that somebody holds, is left alone."""

CONTACT_SECONDS = 3.0
"""The least time of unbroken contact before a rescue: anybody's jobs are rescued, and heartbeats try each 2 seconds."""


class Rescuer:
    """Rescue until ended.

    Args:
        session: the connection for leases.
        schema: of the jobs.
        lease_seconds: the shortest lease that jobs may have, as far as is known here.
    """

    def __init__(self, session: Session, schema: str, *, lease_seconds: float) -> None:
        self._session = session
        self._schema = schema
        self._lease_seconds = lease_seconds
        self._wakeup = Wakeup()
        self._ended = False
        # On the database's clock: nothing claimed before that is running.
        self._since = START.run_at
        self._past = Past()
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
        since = self._session.connected_at
        assert since is not None
        now = anyio.current_time()
        contact = now - since
        if since != self._connected_at or now >= self._whole_at:
            # Perhaps another server, with another clock.
            self._since, self._past = START.run_at, Past()
            self._connected_at, self._whole_at = since, now + WHOLE_SECONDS
        needed = max(interval(self._lease_seconds), CONTACT_SECONDS)
        if contact < needed:
            return needed - contact
        whole = self._since == START.run_at
        found = await jobs.rescue(
            self._session, self._schema, batch=BATCH, since=self._since, awaited=self._past.awaited
        )
        if whole:
            self._whole_at = max(self._whole_at, now + WHOLE_FACTOR * (anyio.current_time() - now))
        self._move(found)
        for job_id, queue, task, state, attempts, worker in found.rescued:
            what = "discarded, its attempts are used up" if state is JobState.DISCARDED else "runs again"
            logger.warning(
                "job %d (%s of queue %s) was rescued from worker %s after attempt %d: %s",
                job_id, task, queue, worker, attempts, what,
            )  # fmt: skip
        if len(found.rescued) == BATCH:
            return 0.0
        pause = self._lease_seconds
        if found.next_seconds is not None:
            # One that ran out already is held by another rescuer, or by somebody's open transaction.
            next_end = found.next_seconds + MARGIN_SECONDS
            pause = min(pause, next_end if next_end > 0 else HELD_SECONDS)
        return pause

    def _move(self, found: jobs.Rescue) -> None:
        """Look at less the next time."""
        approved = self._past.approved
        self._since = max(self._since, approved if found.first is None else min(found.first, approved))
        if not self._past.note(found.looked_at, found.writers, over=found.over):
            self._whole_at = 0.0
