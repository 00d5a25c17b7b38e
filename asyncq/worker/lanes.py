"""From where a worker reads each of its lanes, so that a claim costs the same whatever lies at their heads.

A lane is one queue and priority; its jobs stand in the order of `run_at` and id. At its head may lie what a claim has
to pass over again and again: rows of tasks that this worker does not know, rows that other workers just took, and, as
long as some old transaction in the cluster may still look at them, the index entries of all jobs that were ever done.
So a worker remembers two positions of each lane:

- ``fast``: the last job it took, or the time it looked when it found no more. Claims read on from here.
- ``safe``: nothing that this worker could run is behind it, and nothing will come to be, unless a notification says so.

Jobs do appear behind ``fast``: a transaction that was open during a look commits, a claim of another worker is undone.
A look *from the safe position* finds them. It comes with each notification, whenever a lane has run dry, and now and
then while there is a backlog.

How ``safe`` moves (`asyncq.worker.horizon`): a job that is deferred gets its `run_at` from the clock while its
transaction holds a lock on the table. So at a time `t`, all transactions that could still commit a job with a `run_at`
before `t` are among those that hold this lock at `t`. Once they have ended, what is due before `t` is there to be
seen, and the first of these rows that this worker could run, or `t` itself, is safe.

What does not obey this rule is announced: a job deferred with a `run_at` in the past, and one that a release or a
rescue puts back into its old place, are notified as such, and all lanes of the queue are looked at from their very
start. So they are at each poll, for what nobody announced: rows put in by SQL with an old `run_at`.

Nothing here talks to the database: this is the bookkeeping, and the invariants above are what its tests check.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from asyncq.db.instants import LAST, START, Position
from asyncq.db.jobs import Asked, Claim

__all__ = ["Lane", "Lanes", "Look", "Noted"]

HIGHEST, LOWEST = 32_768, -32_769
"""One beyond the priorities there are."""

MOST_LANES = 100
"""Lanes of a queue that are remembered through a look at all of it though they were empty."""


class Look(IntEnum):
    """How a queue is to be looked at."""

    ON = 0
    """Read on from the fast positions: a backlog is being worked off."""
    BACK = 1
    """From the safe positions, at new lanes too, and when the next job falls due: it was notified, or ran dry."""
    ALL = 2
    """From the very start, as far as is needed to correct both positions."""


@dataclass(slots=True)
class Lane:
    """The positions in one lane; see the module."""

    fast: Position
    safe: Position


class Noted(NamedTuple):
    """What a claim says about the queues it asked.

    Args:
        counts: how many jobs each gave.
        full: those that may have more that is due where it was read.
        opened: those of which lanes came to light that have to be looked at.
    """

    counts: dict[str, int]
    full: set[str]
    opened: set[str]


class Lanes:
    """The lanes of all queues of one worker, as far as it knows them."""

    def __init__(self) -> None:
        # Of each queue by priority, the highest first.
        self._lanes: dict[str, dict[int, Lane]] = {}
        self._approved = START
        # As it was when the claim under way was sent: what that claim sees may be older than what is approved now.
        self._approved_then = START

    def forget(self) -> None:
        """Start over: the positions may mean nothing any more."""
        self._lanes.clear()
        self._approved = self._approved_then = START

    def asked(self, queue: str, slots: int, look: Look) -> Asked:
        """Say what the next claim has to ask of a queue."""
        self._approved_then = self._approved
        lanes = self._lanes.get(queue, {})
        if look is Look.ON:
            return Asked(queue, slots, [(priority, lane.fast) for priority, lane in lanes.items()])
        gaps: list[tuple[int, int]] = [(HIGHEST, LOWEST)]
        if look is Look.BACK:
            borders = [HIGHEST, *lanes, LOWEST]
            gaps = [(top, bottom) for top, bottom in pairwise(borders) if top - bottom > 1]
        return Asked(queue, slots, [(priority, lane.safe) for priority, lane in lanes.items()], gaps, later=True)

    def note(self, asked: Sequence[Asked], claim: Claim, free: int) -> Noted:
        """Move the positions by what a claim found.

        Args:
            asked: what it asked, as `asked` gave it.
            claim: what it found.
            free: how many jobs it was to find at most.
        """
        counts = {each.queue: 0 for each in asked}
        last: dict[tuple[str, int], Position] = {}
        for row in claim.rows:
            counts[row.queue] += 1
            last[row.queue, row.priority] = Position(row.run_at, row.id)
        # When the slots ran out, a queue behind may not have been asked at all.
        full = {each.queue for each in asked if counts[each.queue] == each.slots or len(claim.rows) == free}
        looked = Position(claim.looked_at, LAST)
        for each in asked:
            for priority, asked_from in each.lanes:
                lane = self._lanes.get(each.queue, {}).get(priority)
                if lane is None:
                    continue
                if each.queue not in full:
                    lane.fast = max(lane.fast, looked)
                elif (position := last.get((each.queue, priority))) is not None:
                    # From the safe position it may not have got as far as before: the next claim reads on here.
                    lane.fast = position if asked_from < lane.fast else max(lane.fast, position)
        opened = {
            queue
            for queue, priority, first in claim.opened
            if self._open(queue, priority, looked if first is None else min(looked, _before(first)))
        }
        for each in asked:
            if (HIGHEST, LOWEST) in each.gaps:
                self._forget_some(each.queue, {priority for queue, priority, _ in claim.opened if queue == each.queue})
        return Noted(counts, full, opened)

    def _open(self, queue: str, priority: int, first: Position) -> bool:
        """Note a lane that has rows; says whether it is new, or has to be read from further back than was known."""
        lanes = self._lanes.setdefault(queue, {})
        lane = lanes.get(priority)
        if lane is None:
            lanes[priority] = Lane(first, min(first, self._approved_then))
            self._lanes[queue] = dict(sorted(lanes.items(), reverse=True))
            return True
        lane.fast = min(lane.fast, first)
        if lane.safe <= first:
            return False
        lane.safe = first
        return True

    def _forget_some(self, queue: str, seen: set[int]) -> None:
        lanes = self._lanes.get(queue, {})
        if len(lanes) > MOST_LANES:
            self._lanes[queue] = {priority: lane for priority, lane in lanes.items() if priority in seen}

    def behind(self, approved: int) -> list[tuple[str, int, Position]]:
        """Give the lanes whose safe position may move up to this instant: queue, priority, and from where."""
        return [
            (queue, priority, lane.safe)
            for queue, lanes in self._lanes.items()
            for priority, lane in lanes.items()
            if lane.safe < (approved, LAST)
        ]

    def approve(
        self, approved: int, lanes: Sequence[tuple[str, int, Position]], first: Sequence[Position | None]
    ) -> None:
        """Move safe positions: up to the first job of each lane that this worker could run, else to the instant.

        Args:
            approved: the instant before which nothing more can come to be.
            lanes: as `behind` gave them.
            first: of each, its first job behind that position and before the instant, if any.
        """
        self._approved = max(self._approved, Position(approved, LAST))
        for (queue, priority, asked_from), found in zip(lanes, first, strict=True):
            lane = self._lanes.get(queue, {}).get(priority)
            if lane is None or lane.safe != asked_from:
                # A look at all of the queue corrected it meanwhile.
                continue
            lane.safe = Position(approved, LAST) if found is None else _before(found)
            lane.fast = max(lane.fast, lane.safe)


def _before(job: Position) -> Position:
    return Position(job.run_at, job.id - 1)
