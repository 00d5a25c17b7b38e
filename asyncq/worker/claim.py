"""Claim work for free slots, and sleep when there is none.

What comes in are notifications, freed slots and the clock; what goes out are claimed rows, handed to the executor. The
invariant: a queue that may have due work is in `_ready` or in `_looks`. It is taken out *before* the claim that asks
it, so that a notification during the claim puts it back.

A queue is in `_ready` while each claim fills all the slots asked for it: the next one reads on where this one ended. It
is in `_looks` when it was notified, when it ran dry, when its next job falls due, and, all of them, at each poll: then
it is looked at from further back (`asyncq.worker.lanes` says from where, and why).

A claim asks for no more jobs than slots are free: what is claimed starts at once, so a crash costs attempts only of
what was running. Of many free slots it asks for half, and the server works on the next claim while these begin to run.
What was finished meanwhile goes along with the claim, to be retired in the same statement.

A notification reaches every worker of the queue: whether it is followed at once says `asyncq.worker.hesitation`. A
queue may also have to be looked at without any: how often, and when, is decided in `asyncq.worker.quiet`, which is told
what claims found.
"""

import logging
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from typing import Any

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.events import Events, JobsClaimed
from asyncq.job import Lease
from asyncq.outcome import Released, change
from asyncq.task import Task
from asyncq.worker.execute import Executor
from asyncq.worker.finish import Finisher
from asyncq.worker.hesitation import Hesitation
from asyncq.worker.lanes import Lanes, Look
from asyncq.worker.quiet import Quiet, State
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup, jittered

__all__ = ["Claimer", "share"]

logger = logging.getLogger("asyncq.worker")

MOST_DOUBTFUL = 100
"""Claims without an answer that are remembered in a long outage; the rescue knows of all."""

AT_ONCE = 100
"""Free slots that are asked for at once, however many there are; of more, half of them."""

QUICK_SECONDS = 0.005
"""How long a look may take on the server and be repeated without a pause."""

SPACING_SECONDS = 0.002
"""Between two looks at what was notified: in a dense stream each takes several jobs, and retires those of the last."""

SOONEST_ALL_SECONDS = 1.0
"""Between two looks at everything while there is no subscription."""

SOONEST_BACK_SECONDS = 0.02
"""Between two looks back while a backlog is worked off."""

LONGEST_PAUSE_SECONDS = 1.0
"""Between two looks at a queue that was notified, however long they take."""


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
        burst: call `done` once no due row is left and nothing runs here.
        most: jobs to be started at most; call `done` once they are. None: no limit.
        lanes: from where each lane is read.
        executor: runs what is claimed.
        finisher: keeps what has run.
        events: told of each claim.
        recorded: whether there are queues that keep history.
        quiet: the states of the queues, which say when to look without having been told.
        quiet_changed: called when one of them may wish something by what happened here.
        took: called with the shortest lease of each claim that found work, and the time before it was asked for.
        settled: says whether what dead workers hold has been taken back, as far as that can be. A burst waits for it.
        done: see `burst` and `most`.
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
        most: int | None,
        lanes: Lanes,
        executor: Executor,
        finisher: Finisher,
        events: Events,
        recorded: bool,
        quiet: Mapping[str, Quiet],
        quiet_changed: Callable[[], None],
        took: Callable[[float, float], None],
        settled: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self._session = session
        self._schema = schema
        self._worker_id = worker_id
        self._weights = weights
        self._strict = strict
        self._tasks = list(tasks)
        self._poll = poll.total_seconds()
        self._burst = burst
        self._left = sys.maxsize if most is None else most
        self._lanes = lanes
        self._executor = executor
        self._finisher = finisher
        self._events = events
        self._recorded = recorded
        self._quiet = quiet
        self._quiet_changed = quiet_changed
        self._took = took
        self._settled = settled
        self._done = done
        self._wakeup = Wakeup()
        self._stopping = False
        self._back = False
        self.awake = False
        """Whether a claim is under way, or it is being found out whether one is to be."""
        self._ready: set[str] = set()
        self._looks: dict[str, Look] = {}
        self._credit: dict[str, float] = dict.fromkeys(weights, 0.0)
        # On the event loop's clock: when jobs fall due, and when notifications are followed.
        self._due: dict[str, float] = {}
        self._follow: dict[str, float] = {}
        self._next_poll = -inf
        self._next_look = -inf
        self._next_back = -inf
        self._next_all = -inf
        self._hesitation = Hesitation()
        # Queues that are to be looked at because of a notification, or because a job fell due.
        self._told: set[str] = set()
        # Tokens of claims whose answer never came.
        self._doubtful: list[int] = []
        # In a burst: whether all queues were put to be asked since something was last found.
        self._asked_last = False

    def notified(self, queue: str) -> None:
        """Somebody put work into this queue."""
        if queue in self._weights:
            self._notice(queue)
            self._wakeup.set()

    def look(self, queue: str | None = None, look: Look = Look.ALL) -> None:
        """Look at a queue, or at every one, without delay: something may have been missed."""
        self._look_at([each for each in self._weights if queue in (None, each)], look)
        self._wakeup.set()

    def reconnected(self) -> None:
        """Another connection of this worker was opened: the database is back, if it was away."""
        self._back = True
        self._wakeup.set()

    def freed(self) -> None:
        """A slot is free, or an outcome was written."""
        self._wakeup.set()

    def stop(self) -> None:
        """Claim no more, and let `run` end."""
        self._stopping = True
        self._wakeup.set()
        for quiet in self._quiet.values():
            quiet.stop()
        self._quiet_changed()

    async def run(self) -> None:
        """Claim while there are free slots and work for them; otherwise sleep."""
        try:
            await self._run()
        finally:
            self._rest()
        if self._doubtful:
            with suppress(Exception):  # the rescue is left for it
                await self._settle_doubt()

    def _rest(self) -> None:
        """Leave what has finished to be written by itself."""
        self.awake = False
        self._finisher.wake()

    async def _settle_doubt(self) -> None:
        """Give back what a claim took whose answer never came: its runs never began, and cost no attempt."""
        await jobs.release(self._session, self._schema, self._doubtful)
        self._doubtful.clear()

    async def _run(self) -> None:
        trouble = Trouble("claiming")
        while not self._stopping:
            self.awake = True
            try:
                pause = await self._step()
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                self._rest()
                for quiet in self._quiet.values():
                    quiet.trouble()
                self._quiet_changed()
                await self._wait_out(trouble.met(error, anyio.current_time()))
                continue
            trouble.over()
            if pause > 0.0:
                if not self._looks or pause > SPACING_SECONDS:
                    self._rest()
                await self._wakeup.sleep(None if pause == inf else pause)

    async def _wait_out(self, seconds: float) -> None:
        """Wait for the database to come back: freed slots do not hasten that, a stop and the listener's return do."""
        until = anyio.current_time() + seconds
        self._back = False
        while not (self._stopping or self._back) and (left := until - anyio.current_time()) > 0:
            await self._wakeup.sleep(min(left, 0.1))

    async def _step(self) -> float:
        """Do one thing that is to be done; gives how long to sleep before the next, 0 for not at all."""
        now = anyio.current_time()
        self._look_at_the_clock(now)
        idle = not self._executor.runs and len(self._finisher) == 0
        if self._burst and idle and not self._asked_last:
            # Asked once more, all of them, before it ends: the last jobs may have put in others.
            self._look_at(self._weights, Look.ALL)
            self._asked_last = True
        free = min(self._executor.free, max(AT_ONCE, self._executor.concurrency // 2), self._left)
        if free <= 0 or len(self._finisher) > 2 * len(self._executor.runs) + 1_000:
            return inf
        look = bool(self._looks) and now >= (self._next_back if self._ready else self._next_look)
        if self._ready or look:
            if self._doubtful:
                await self._settle_doubt()
            if await self._claim(free, look=look):
                self._asked_last = False
            return 0.0
        if self._burst and idle and not (self._looks or self._follow or self._stopping) and self._settled():
            self._done()
            return inf
        times = [self._next_poll, *self._due.values(), *self._follow.values()]
        times += [quiet.look_at for queue, quiet in self._quiet.items() if queue not in self._looks]
        return max(min(times + [self._next_look] * bool(self._looks)) - now, 0.0)

    def _look_at(self, queues: Iterable[str], look: Look) -> None:
        for queue in queues:
            self._looks[queue] = max(look, self._looks.get(queue, look))

    def _look_at_the_clock(self, now: float) -> None:
        """Put the queues to be looked at whose time has come, or, at each poll, all of them."""
        if now >= self._next_poll:
            self._look_at(self._weights, Look.ALL)
            # Workers that started together drift apart once, at their first poll.
            self._next_poll = now + (self._poll if self._next_poll > -inf else jittered(self._poll))
        for queue in [queue for queue, at in self._due.items() if at <= now]:
            del self._due[queue]
            self._notice(queue)
        for queue in [queue for queue, at in self._follow.items() if at <= now]:
            del self._follow[queue]
            self._told.add(queue)
            self._look_at([queue], Look.BACK)
        for queue, quiet in self._quiet.items():
            if quiet.look_at <= now:
                # What is put into the past, or back into its old place, is told of; if not, it has to be looked for.
                self._look_at([queue], Look.ALL if quiet.deaf and now >= self._next_all else Look.BACK)

    def _notice(self, queue: str) -> None:
        """Follow what every worker of the queue may have heard: at once, or, after looks in vain, in a moment."""
        if self._hesitation.seconds == 0.0:
            self._told.add(queue)
            self._look_at([queue], Look.BACK)
        elif queue not in self._follow:
            self._follow[queue] = anyio.current_time() + jittered(self._hesitation.seconds)

    async def _claim(self, free: int, *, look: bool) -> bool:
        queues = {
            queue: weight for queue, weight in self._weights.items() if queue in self._ready or queue in self._looks
        }
        slots = dict.fromkeys(queues, free) if self._strict else share(free, queues, self._credit)
        looks = {queue: self._looks.pop(queue) for queue in slots if queue in self._looks} if look else {}
        self._ready.difference_update(slots)
        asked = [self._lanes.asked(queue, count, looks.get(queue, Look.ON)) for queue, count in slots.items()]
        token = secrets.randbits(63)
        # Until its answer is here, the claim may have been carried out or not.
        self._doubtful = [*self._doubtful[-MOST_DOUBTFUL:], token]
        finished = self._finisher.take()
        began = anyio.current_time()
        try:
            claim = await jobs.claim(
                self._session,
                self._schema,
                asked=asked,
                free=free,
                tasks=self._tasks,
                here=self._executor.ending(),
                worker=self._worker_id,
                token=token,
                finished=finished,
                recorded=self._recorded,
            )
        except BaseException as error:
            self._finisher.give_back(finished, error)
            # Nothing is known of them: to be asked again. What the claim took all the same is given back first.
            self._look_at(self._weights, Look.BACK)
            raise
        self._doubtful.pop()
        self._finisher.settle(finished, claim.unwritten)
        self._start(claim, token, began)
        self._note(asked, looks, claim, free)
        return bool(claim.rows)

    def _start(self, claim: jobs.Claim, token: int, began: float) -> None:
        taken = anyio.current_time() - began
        self._events.emit(JobsClaimed(len(claim.rows), taken))
        rows: list[jobs.ClaimedRow] = []
        for row in claim.rows:
            # The claim was under way when the stop came: nothing starts any more. Or this process stood still until the
            # answer was old, and the job may run elsewhere by now.
            if self._stopping or row.lease_seconds <= taken:
                self._finisher.put(Lease(row.id, token, row.lease_seconds), change(Released()))
            else:
                rows.append(row)
        if not rows:
            return
        shortest = min(row.lease_seconds for row in rows)
        if len(self._weights) > 1:
            # They come by priority, whatever their queue; the queues are served in their order.
            order = {queue: place for place, queue in enumerate(self._weights)}
            rows = sorted(rows, key=lambda row: order[row.queue])
        self._executor.start(rows, token, claim.looked_at)
        # Only now: the watchdog looks for what is held as soon as it is told, in a thread of its own.
        self._took(shortest, began)
        self._left -= len(rows)
        if self._left <= 0:
            logger.info("all jobs of max_jobs have been started: no more claims, the worker ends with the last of them")
            self._done()

    def _note(self, asked: Sequence[jobs.Asked], looks: Mapping[str, Look], claim: jobs.Claim, free: int) -> None:
        """Put the queues where they belong after a claim."""
        now = anyio.current_time()
        noted = self._lanes.note(asked, claim, free)
        self._ready |= noted.full
        self._look_at(noted.opened, Look.BACK)
        sooner = False
        told = self._told & looks.keys()
        self._told -= told
        for queue, *_ in asked:
            full = queue in noted.full
            quiet = self._quiet[queue]
            quiet.claimed(now, noted.counts[queue], full=full, looked=queue in looks)
            if full:
                if quiet.state is State.IDLE:
                    self._quiet_changed()
                continue
            self._credit[queue] = 0.0
            if queue not in looks:
                # It was only read on: also to be found is what appeared further back, and what falls due next.
                self._look_at([queue], Look.BACK)
                continue
            before = self._due.pop(queue, inf)
            if queue in claim.later:
                self._due[queue] = now + max(claim.later[queue], 0.0)
                sooner = sooner or self._due[queue] < before - 0.01
        if looks:
            self._space(looks, claim.seconds, now)
        if noted.opened:
            # A lane that was not known has work now.
            self._next_look = now
        if claim.rows:
            self._hesitation.found(len(claim.rows), now, full=bool(noted.full))
        elif told and not noted.opened and not sooner:
            self._hesitation.in_vain(now)

    def _space(self, looks: Mapping[str, Look], took: float, now: float) -> None:
        """Leave time until the next look, by what this one took."""
        pause = max(4.0 * (took - QUICK_SECONDS), SPACING_SECONDS)
        self._next_look = now + min(pause, LONGEST_PAUSE_SECONDS)
        self._next_back = now + min(max(20.0 * took, SOONEST_BACK_SECONDS), LONGEST_PAUSE_SECONDS)
        if Look.ALL in looks.values():
            self._next_all = now + max(20.0 * took, SOONEST_ALL_SECONDS)


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
