"""Claim work for free slots, and sleep when there is none.

What comes in are notifications, freed slots and the clock; what goes out are claimed rows, handed to the executor. The
invariant: a queue that may have due work is in `_ready`. It is taken out *before* the claim that asks it, so that a
notification during the claim puts it back; it goes back in when the claim filled all that was asked for it, when a
notification names it, when its next job falls due, and, all of them, at each poll.

A claim asks for as many jobs as slots are free, and no more: what is claimed starts at once, so a crash costs attempts
only of what was running.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from math import inf
from typing import Any

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.job import Lease
from asyncq.outcome import Released, change
from asyncq.task import Task
from asyncq.worker.execute import Executor
from asyncq.worker.finish import Finisher
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup, jittered

__all__ = ["Claimer", "share"]

MOST_DOUBTFUL = 100
"""Claims without an answer that are remembered in a long outage; the rescue knows of all."""


class Claimer:
    """Claim until told to stop.

    Args:
        session: the connection for claims and outcomes.
        schema: of the jobs.
        worker_id: written to the rows that are claimed.
        weights: of the queues served, in the order of serving.
        strict: serve them strictly in that order.
        tasks: what this worker can run, by name.
        poll: between two looks at everything.
        burst: call `dry` once no due row is left and nothing runs here.
        executor: runs what is claimed.
        finisher: takes back what must not start.
        took: called with the shortest lease of each claim.
        dry: see `burst`.
    """

    def __init__(
        self,
        session: Session,
        schema: str,
        *,
        worker_id: str,
        weights: Mapping[str, int],
        strict: bool,
        tasks: Mapping[str, Task[..., Any]],
        poll: timedelta,
        burst: bool,
        executor: Executor,
        finisher: Finisher,
        took: Callable[[float], None],
        dry: Callable[[], None],
    ) -> None:
        self._session = session
        self._schema = schema
        self._worker_id = worker_id
        self._weights = weights
        self._strict = strict
        self._tasks = list(tasks)
        self._poll = poll.total_seconds()
        self._burst = burst
        self._executor = executor
        self._finisher = finisher
        self._took = took
        self._dry = dry
        self._wakeup = Wakeup()
        self._stopping = False
        self._ready: set[str] = set(weights)
        self._due: dict[str, float] = {}
        self._credit: dict[str, float] = dict.fromkeys(weights, 0.0)
        self._next_poll = -inf
        # Tokens of claims whose answer never came.
        self._doubtful: list[int] = []
        # In a burst: whether all queues were put to be asked since something was last found.
        self._asked_last = False
        # Queues that a claim found dry, whose next due time was not asked for yet, and when the claim looked.
        self._dry_queues: set[str] = set()
        self._dry_since: datetime | None = None

    def notified(self, queue: str) -> None:
        """Somebody put work into this queue."""
        if queue in self._weights:
            self._ready.add(queue)
            self._wakeup.set()

    def look(self) -> None:
        """Look at every queue: something may have been missed."""
        self._ready.update(self._weights)
        self._wakeup.set()

    def freed(self) -> None:
        """A slot is free, or an outcome was written."""
        self._wakeup.set()

    def stop(self) -> None:
        """Claim no more, and let `run` end."""
        self._stopping = True
        self._wakeup.set()

    async def run(self) -> None:
        """Claim while there are free slots and work for them; otherwise sleep."""
        await self._run()
        if self._doubtful:
            with suppress(Exception):  # the rescue is left for it
                await self._settle_doubt()

    async def _settle_doubt(self) -> None:
        """Give back what a claim took whose answer never came: its runs never began, and cost no attempt."""
        await jobs.release(self._session, self._schema, self._doubtful)
        self._doubtful.clear()

    async def _run(self) -> None:
        trouble = Trouble("claiming")
        while not self._stopping:
            try:
                pause = await self._step()
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                await self._wait_out(trouble.met(error, anyio.current_time()))
                continue
            trouble.over()
            if pause > 0.0:
                await self._wakeup.sleep(None if pause == inf else pause)

    async def _wait_out(self, seconds: float) -> None:
        """Wait for the database to come back: freed slots and notifications do not hasten that, a stop does."""
        until = anyio.current_time() + seconds
        while not self._stopping and (left := until - anyio.current_time()) > 0:
            await self._wakeup.sleep(min(left, 0.1))

    async def _step(self) -> float:
        """Do one thing that is to be done; gives how long to sleep before the next, 0 for not at all."""
        self._look_at_the_clock()
        idle = not self._executor.runs and len(self._finisher) == 0
        if self._burst and idle and not self._asked_last:
            # Asked once more, all of them, before it ends: the last jobs may have put in others.
            self._ready.update(self._weights)
            self._asked_last = True
        free = self._executor.free
        if free <= 0 or len(self._finisher) > 2 * len(self._executor.runs) + 1_000:
            return inf
        if self._ready:
            if self._doubtful:
                await self._settle_doubt()
            try:
                found = await self._claim(free)
            except BaseException:
                # Nothing is known of them: to be asked again. What the claim took all the same is given back first.
                self._ready.update(self._weights)
                raise
            if found:
                self._asked_last = False
            elif self._burst and idle and not self._ready and not self._stopping:
                self._dry()
                return inf
            return 0.0
        if self._dry_queues and not self._stopping:
            await self._ask_due()
            return 0.0
        return max(min([self._next_poll, *self._due.values()]) - anyio.current_time(), 0.0)

    def _look_at_the_clock(self) -> None:
        """Put the queues to be asked whose next job has fallen due, or, at each poll, all of them."""
        now = anyio.current_time()
        if now >= self._next_poll:
            self._ready.update(self._weights)
            # Workers that started together drift apart once, at their first poll.
            self._next_poll = now + (self._poll if self._next_poll > -inf else jittered(self._poll))
        for queue in [queue for queue, at in self._due.items() if at <= now]:
            del self._due[queue]
            self._ready.add(queue)

    async def _claim(self, free: int) -> bool:
        if self._strict:
            slots = {queue: free for queue in self._weights if queue in self._ready}
        else:
            slots = share(free, {q: w for q, w in self._weights.items() if q in self._ready}, self._credit)
        self._ready.difference_update(slots)
        token = secrets.randbits(63)
        # Until its answer is here, the claim may have been carried out or not.
        self._doubtful = [*self._doubtful[-MOST_DOUBTFUL:], token]
        claim = await jobs.claim(
            self._session,
            self._schema,
            slots=slots,
            free=free,
            tasks=self._tasks,
            here=self._executor.ending(),
            worker=self._worker_id,
            token=token,
        )
        self._doubtful.pop()
        self._start(claim.rows, token)
        got = dict.fromkeys(slots, 0)
        for row in claim.rows:
            got[row.queue] += 1
        # When the slots ran out, a queue behind may not have been asked at all.
        full = len(claim.rows) == free
        for queue, count in got.items():
            if full or count == slots[queue]:
                self._ready.add(queue)
            else:
                self._credit[queue] = 0.0
                self._dry_queues.add(queue)
                self._dry_since = claim.looked_at if self._dry_since is None else min(self._dry_since, claim.looked_at)
        return bool(claim.rows)

    def _start(self, rows: Sequence[jobs.ClaimedRow], token: int) -> None:
        if not rows:
            return
        if self._stopping:
            # The claim was under way when the stop came: nothing starts any more.
            for row in rows:
                self._finisher.put(Lease(row.id, token, row.lease_seconds), change(Released()))
            return
        self._took(min(row.lease_seconds for row in rows))
        self._executor.start(rows, token)

    async def _ask_due(self) -> None:
        """Learn when to look again at queues that had no more to do."""
        assert self._dry_since is not None
        asked, since = self._dry_queues, self._dry_since
        self._dry_queues, self._dry_since = set(), None
        try:
            seconds = await jobs.due(self._session, self._schema, queues=sorted(asked), looked_at=since)
        except BaseException:
            self._ready.update(asked)
            raise
        now = anyio.current_time()
        for queue in asked:
            if queue in seconds:
                self._due[queue] = now + max(seconds[queue], 0.0)
            else:
                self._due.pop(queue, None)


def share(free: int, weights: Mapping[str, int], credit: dict[str, float]) -> dict[str, int]:
    """Divide free slots among queues that may have work, by their weights, exactly over time.

    What a queue should have had and did not get, for slots are whole, is kept as its credit for the next time.

    Args:
        free: slots to give away, 1 or more.
        weights: of the queues, 1 or more each.
        credit: carried from call to call, changed in place.

    Returns:
        Slots by queue, in the order of `weights`, queues without any left out; they add up to `free`.

    >>> credit = {"flooded": 0.0, "small": 0.0}
    >>> [share(1, {"flooded": 3, "small": 1}, credit) for _ in range(4)]
    [{'flooded': 1}, {'flooded': 1}, {'small': 1}, {'flooded': 1}]
    >>> share(8, {"flooded": 3, "small": 1}, credit)
    {'flooded': 6, 'small': 2}
    """
    total = sum(weights.values())
    for queue, weight in weights.items():
        credit[queue] += free * weight / total
    slots = {queue: max(int(credit[queue]), 0) for queue in weights}
    # Whole parts may leave a few slots over, or, after rounding, take a few too many.
    order = sorted(weights, key=lambda queue: credit[queue] - slots[queue], reverse=True)
    over = free - sum(slots.values())
    for queue in order if over > 0 else reversed(order):
        if over == 0:
            break
        step = 1 if over > 0 else -min(1, slots[queue])
        slots[queue] += step
        over -= step
    for queue, count in slots.items():
        credit[queue] -= count
    return {queue: count for queue, count in slots.items() if count}
