"""Move the safe positions of lanes behind the work, while there is work: see `asyncq.worker.lanes` for what they are.

Each round notes which transactions hold a lock under which they may still commit jobs, and the time. Once these have
ended, which a later round finds, nothing more can appear before that time; the round after that one, whose snapshot
sees all they did, asks what stands first in each lane before it.

A transaction that has put in a job and stays open for long holds this up. That costs time in looks, and loses nothing.
"""

from collections.abc import Sequence

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.db.instants import START
from asyncq.worker.lanes import Lanes
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup

__all__ = ["Horizon", "Past"]

ROUND_SECONDS = 0.25
MARGIN_MICROSECONDS = 250_000
"""A `run_at` given by a program's own clock, late by less than this, is nothing to be announced."""

ROUNDS = 4
"""Rounds after the last claim: note, find over, ask, and one for a transaction that took a moment longer."""


class Past:
    """Know up to when nothing can be added to the past any more; on the database's clock, see `asyncq.db.instants`.

    Args:
        margin: microseconds by which less is approved than is known.
    """

    def __init__(self, margin: int = 0) -> None:
        self._margin = margin
        self.approved = self._noted = START.run_at
        """No transaction that is open can add anything before `approved` any more."""
        self.awaited: list[str] = []
        """The transactions that have to end before more is approved."""

    def note(self, looked_at: int, writers: Sequence[str], *, over: bool) -> bool:
        """Take what a statement saw.

        Args:
            looked_at: its time, from before it looked at the transactions.
            writers: the transactions that could still add something from before that time.
            over: whether those awaited have ended. What they added is seen by the next statement.

        Returns:
            False when the clock was set back, so that all has to be forgotten.
        """
        if looked_at < self._noted:
            return False
        if over:
            self.approved = max(
                self.approved, self._noted - self._margin if self._noted > START.run_at else START.run_at
            )
            self._noted, self.awaited = looked_at, list(writers)
        return True


class Horizon:
    """Run rounds until ended.

    Args:
        session: the connection for leases.
        schema: of the jobs.
        lanes: whose positions are moved.
        tasks: known names.
    """

    def __init__(self, session: Session, schema: str, *, lanes: Lanes, tasks: Sequence[str]) -> None:
        self._session = session
        self._schema = schema
        self._lanes = lanes
        self._tasks = tasks
        self._wakeup = Wakeup()
        self._rounds = 0
        self._restarted = False
        self._ended = False

    def moved(self) -> None:
        """Note that jobs were taken, so that positions may move."""
        if self._rounds == 0:
            self._wakeup.set()
        self._rounds = ROUNDS

    def restart(self) -> None:
        """Forget what was noted: from now on it may be another server, with another clock."""
        self._restarted = True

    def end(self) -> None:
        """Let `run` end."""
        self._ended = True
        self._wakeup.set()

    async def run(self) -> None:
        """Run rounds while there is work, and sleep while there is none."""
        trouble = Trouble("looking at open transactions")
        past = Past(MARGIN_MICROSECONDS)
        while not self._ended:
            if self._restarted:
                past, self._restarted = Past(MARGIN_MICROSECONDS), False
            if self._rounds == 0:
                await self._wakeup.sleep()
                continue
            self._rounds -= 1
            approved = past.approved
            lanes = self._lanes.behind(approved)
            try:
                found = await jobs.horizon(
                    self._session, self._schema, awaited=past.awaited, approved=approved, lanes=lanes, tasks=self._tasks
                )
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                await self._wakeup.sleep(trouble.met(error, anyio.current_time()))
                continue
            trouble.over()
            if not past.note(found.looked_at, found.writers, over=found.over):
                self._lanes.forget()
                self._restarted = True
            if not self._restarted:
                self._lanes.approve(approved, lanes, found.first)
            await self._wakeup.sleep(ROUND_SECONDS)
