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

__all__ = ["Horizon"]

ROUND_SECONDS = 0.5
MARGIN_MICROSECONDS = 1_000_000
"""A `run_at` given by a program's own clock, late by less than this, is nothing to be announced."""

ROUNDS = 4
"""Rounds after the last claim: note, find over, ask, and one for a transaction that took a moment longer."""


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
        noted, awaited, approved = START.run_at, list[str](), START.run_at
        while not self._ended:
            if self._restarted:
                noted, awaited, approved, self._restarted = START.run_at, [], START.run_at, False
            if self._rounds == 0:
                await self._wakeup.sleep()
                continue
            self._rounds -= 1
            lanes = self._lanes.behind(approved)
            try:
                found = await jobs.horizon(
                    self._session, self._schema, awaited=awaited, approved=approved, lanes=lanes, tasks=self._tasks
                )
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                await self._wakeup.sleep(trouble.met(error, anyio.current_time()))
                continue
            trouble.over()
            if found.looked_at < noted:
                # The clock was set back: what comes now has earlier times than what was approved.
                self._lanes.forget()
                self._restarted = True
            if not self._restarted:
                self._lanes.approve(approved, lanes, found.first)
                if found.over:
                    approved = max(approved, noted)
                    noted, awaited = found.looked_at - MARGIN_MICROSECONDS, found.writers
            await self._wakeup.sleep(ROUND_SECONDS)
