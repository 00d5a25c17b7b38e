"""Quiet: a defer notifies, unless no idle worker needs it.

A notification takes a lock of the whole cluster, through the flush of its commit: with many writers it halves what they
get done. Nobody needs one while the workers of a queue are busy and look for work by themselves. So there is one
advisory lock for each queue, K, held by sessions, on the very connections that listen, and never waited for. A sender
tries it shared, for a moment: refused, it leaves the notification out.

A worker looks by itself when it has a backlog, or when it is told often and sees that several sessions wait for that
lock of the cluster. Short of that a notification is the cheaper and the faster way.

====== ========= ======================================= ==============================================================
state  holds     promise                                 leaves by
====== ========= ======================================= ==============================================================
HOT    nothing   looks by itself, from each 2 ms to      dry: tries K shared, to be IDLE; else tries K exclusive, to
                 once a second, as it finds              be KEEPER
IDLE   shared    none: it sleeps until it is told        writers wait, or a backlog: gives K back, HOT, tries KEEPER
KEEPER exclusive looks by itself, each 2 ms to 10 ms     dry: takes K shared, then gives the other back, IDLE; asked to
                 as it finds, or as a slot is free       while it cannot look, or as its claims fail: gives K back, HOT
====== ========= ======================================= ==============================================================

Dry is a queue in which little was found and little heard of for a quarter of a second, without a backlog. A worker
begins HOT and dry, and is so again, holding nothing, when it has lost its connection.

**Why no wake-up is lost.** While a worker is IDLE nobody is KEEPER, so each sender that decides then notifies it. Those
that decided before, while there was a KEEPER, already had their lock on the jobs table: the INSERT stands before the
decision, and transactions keep such locks to their end. So the worker, once it holds K shared, reads who has such a
lock, looks, and looks again whenever one of these has ended. What they commit is visible before their lock is gone. All
others it hears, for it listened before. This holds for each worker alone: nobody's sleep hangs on another's promise.

Nothing of it hangs on a snapshot (advisory locks are read as they are, at every isolation level), nor on how long a
transaction lasts. A prepared one keeps its name in the list of locks, or gets one that starts with -1, after a restart
and on old minor releases: these are all waited for. Waiting ends when the next poll comes sooner than the next reading.

**What happens on failure.** K is held where the worker listens, so both are lost together, and the server gives K back
when the connection ends: at once for a process that was killed, within half a minute for a machine that vanished
(keepalives are set for the server's side too). Until then the others are refused K: they stay HOT and look at least
once a second. So they do beside a KEEPER whose event loop is blocked, or whose slots are all taken. The latter they can
tell to give way: a worker that is refused, and has free slots, asks once a second, and who cannot look heeds it.

Nothing here talks to the database, and time comes in as a value. `asyncq.worker.listen` carries out what is wished.
"""

from collections import deque
from collections.abc import Set as AbstractSet
from enum import Enum
from math import inf

__all__ = ["Quiet", "State"]

OFTEN = 10
"""So many notifications, or jobs found, in the spans below make a queue one to be looked at without being told."""

HEARD_SECONDS = 0.2
FOUND_SECONDS = 0.25

AGAIN_SECONDS = 3.0
LONGEST_KEEPING_SECONDS = 8.0
"""A KEEPER that was dry and is one again so soon stays one for twice as long, at most that long: writers may hold each
other up with jobs that are due much later, of which a look finds none."""

BACKLOG_SECONDS = 0.1
"""How long claims come back full before this is a backlog."""

PRESSING = 3
"""So many sessions that wait for the lock of notifications show that they hold each other up."""

PRESSURE_SECONDS = 0.2
LONGEST_PRESSURE_SECONDS = 2.0
"""Between two questions for that while it is told often, the first after the first time, growing."""

LOOK_SECONDS = 0.002
KEEPER_LOOK_SECONDS = 0.01
LONGEST_LOOK_SECONDS = 0.25
"""Between two looks: the least; the most of a KEEPER, and of others."""

DRY_SECONDS = 5.0
DRY_LOOK_SECONDS = 1.0
"""Between two looks of one that is HOT and has found nothing for so long."""

BACKLOG_LOOK_SECONDS = 0.1
"""Between two looks back while a backlog is read on: for lanes that are new, and for jobs that were committed late."""

HELD_UP_SECONDS = 0.02
"""A look that is late by so much shows that no slot is free."""

ASK_SECONDS = 1.0
"""Between two questions to a KEEPER to give way, and how long one that did leaves K to others."""

CHECK_SECONDS = 0.05
"""Between two checks for what comes with time alone, and from a question to the next try."""


class State(Enum):
    """What a worker is to a queue; the value is what it holds of K, as the statement takes it."""

    HOT = "nothing"
    IDLE = "shared"
    KEEPER = "exclusive"


class Quiet:
    """The state of one queue in one worker.

    Args:
        now: on any clock that does not jump, as all times here.
        poll_seconds: between two looks at everything, which come whatever the state is.
    """

    def __init__(self, now: float, poll_seconds: float) -> None:
        self._poll = poll_seconds
        self.state = State.HOT
        self.look_at = now
        """When to look without having been told; never while IDLE."""
        self.asks = False
        """Whether to tell a KEEPER that it should give way; whoever tells it puts this back."""
        self._connected = False
        self._stopped = False
        self._troubled = False
        self._since = now
        self._interval = LOOK_SECONDS
        self._heard: deque[float] = deque(maxlen=OFTEN)
        self._pressed_at = -inf
        self._next_pressure = -inf
        self._pressure_pause = PRESSURE_SECONDS
        self._found: deque[float] = deque(maxlen=OFTEN)
        self._claimed_at = now
        self._found_at = now
        self._full_since: float | None = None
        self._next_try = now
        self._next_ask = now
        self._keeps_from = -inf
        self._kept_until = -inf
        self._keeping = FOUND_SECONDS
        # The transactions waited for, once they were read; when the waiting began, and when they are read next.
        self._writers: set[str] | None = None
        self._waits_since = now
        self._read_at = inf

    # What happens.

    def subscribed(self, now: float) -> None:
        """It listens, on a new connection: dry, so that K shared is tried first, unless there is a backlog."""
        self._connected = True
        self._become(State.HOT, now)
        self._since = now - FOUND_SECONDS
        self._heard.clear()

    def lost(self, now: float) -> None:
        """The connection is gone, and K with it."""
        self._connected = False
        self._become(State.HOT, now)

    @property
    def deaf(self) -> bool:
        """Whether nobody tells of anything, of what is put back into the past neither."""
        return not self._connected

    def stop(self) -> None:
        """Take nothing any more, and give back what is held."""
        self._stopped = True
        self.look_at = inf

    def trouble(self) -> None:
        """Claims fail: no promise to look can be kept."""
        self._troubled = True

    def heard(self, now: float) -> None:
        """Note a notification of work."""
        self._heard.append(now)

    def doubts(self, now: float) -> bool:
        """Say whether to find out how many sessions wait for the lock of notifications."""
        if self.state is not State.IDLE or not _often(self._heard, now - HEARD_SECONDS):
            return False
        return now >= self._next_pressure

    def pressure(self, waiting: int, now: float) -> None:
        """Note it."""
        if now - self._next_pressure > 2.0 * LONGEST_PRESSURE_SECONDS:
            self._pressure_pause = PRESSURE_SECONDS / 2.0
        self._pressure_pause = min(2.0 * self._pressure_pause, LONGEST_PRESSURE_SECONDS)
        if waiting >= PRESSING:
            self._pressed_at = now
            self._pressure_pause = PRESSURE_SECONDS
        self._next_pressure = now + self._pressure_pause

    def asked(self, now: float) -> None:
        """Note that somebody asks whoever keeps this queue to give way: one question a second is enough for all."""
        self._next_ask = now + ASK_SECONDS
        if self._held_up(now):
            self._keeps_from = now + ASK_SECONDS

    def claimed(self, now: float, found: int, *, full: bool, looked: bool) -> None:
        """Note a claim: how many jobs of this queue it found, whether there may be more, and whether it looked back."""
        self._troubled = False
        self._claimed_at = now
        if not full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        if found:
            self._found_at = now
            self._found.extend([now] * min(found, OFTEN))
        if not looked or self.state is State.IDLE or self._stopped:
            return
        if full:
            # It is read on without a pause, and this is for what appears further back.
            self._interval = LOOK_SECONDS
            self.look_at = now + BACKLOG_LOOK_SECONDS
            return
        if self.state is State.KEEPER:
            # About one job a look: more of them are not worth their statements, and fewer let jobs wait.
            factor = 1.5 if not found else 1.0 if found == 1 else 0.5
            self._interval = min(max(factor * self._interval, LOOK_SECONDS), KEEPER_LOOK_SECONDS)
        elif now - max(self._found_at, self._since) > DRY_SECONDS:
            self._interval = DRY_LOOK_SECONDS
        else:
            self._interval = min(self._interval * (1.5 if found else 2.0), LONGEST_LOOK_SECONDS)
        self.look_at = now + self._interval

    # What is to be done with K.

    def wish(self, now: float) -> State | None:
        """Say which state to try for now, or None to stay."""
        if not self._connected:
            return None
        if self._stopped:
            return None if self.state is State.HOT else State.HOT
        may_keep = now >= self._keeps_from and not self._troubled
        match self.state:
            case State.IDLE:
                backlog = self._full_since is not None and now - self._full_since >= BACKLOG_SECONDS
                if not backlog and now - self._pressed_at > HEARD_SECONDS:
                    return None
                return State.KEEPER if may_keep else State.HOT
            case State.KEEPER:
                if not may_keep:
                    return State.HOT
                return State.IDLE if self._dry(now) else None
            case State.HOT:
                if now < self._next_try:
                    return None
                if self._dry(now):
                    return State.IDLE
                return State.KEEPER if may_keep else None

    def settle(self, wish: State, now: float, *, got: bool) -> None:
        """Note what came of a wish; refused, whatever was held before is given back."""
        state = wish if got else State.HOT
        if state is not self.state:
            self._become(state, now)
        if state is State.HOT:
            age = now - self._since
            # For a moment often: other workers, and senders, have K for an instant.
            self._next_try = now + (0.01 if age < 0.3 else 0.1 if age < DRY_SECONDS else 1.0)
            wanted = not got and age >= 0.3 and self._full_since is None and not self._held_up(now)
            if wanted and now >= self._next_ask:
                self.asks = True
                self._next_ask = now + ASK_SECONDS
                self._next_try = now + CHECK_SECONDS

    def reads(self, now: float) -> bool:
        """Say whether it is to be read now which transactions have a lock on the jobs table."""
        return now >= self._read_at

    def read(self, writers: AbstractSet[str], now: float) -> bool:
        """Note them; says whether to look now."""
        if self._writers is None:
            self._writers, ended = set(writers), True
        else:
            ended = not self._writers <= writers
            self._writers &= writers
            self._writers |= {writer for writer in writers if writer.startswith("-1/")}
        pause = max(0.01, 0.25 * (now - self._waits_since))
        self._read_at = now + pause if self._writers and pause < self._poll else inf
        return ended

    def wake_at(self, now: float) -> float:
        """Say when there may be something to wish or to read next, if nothing happens before."""
        if self._stopped and self.state is State.HOT:
            return inf
        match self.state:
            case State.IDLE:
                backlog_at = inf if self._full_since is None else self._full_since + BACKLOG_SECONDS
                # It is woken when it is told, so that is soon enough to find out how others fare.
                return min(self._read_at, backlog_at)
            case State.KEEPER:
                return now + CHECK_SECONDS
            case State.HOT:
                return self._next_try if now < self._next_try else now + CHECK_SECONDS

    # How it is decided.

    def _become(self, state: State, now: float) -> None:
        if self.state is State.KEEPER:
            self._kept_until = now
        elif state is State.KEEPER:
            again = now - self._kept_until < AGAIN_SECONDS
            self._keeping = min(2.0 * self._keeping, LONGEST_KEEPING_SECONDS) if again else FOUND_SECONDS
        self.state = state
        self._since = self._next_try = now
        self._interval = LOOK_SECONDS
        self.look_at = inf if state is State.IDLE or self._stopped else now
        self._writers = None
        self._waits_since = now
        self._read_at = now if state is State.IDLE else inf
        self.asks = False
        if state is State.IDLE:
            self._heard.clear()

    def _dry(self, now: float) -> bool:
        return (
            now - self._since >= (self._keeping if self.state is State.KEEPER else FOUND_SECONDS)
            and self._full_since is None
            and not self._held_up(now)
            and not _often(self._found, now - FOUND_SECONDS)
            and not (now - self._pressed_at < ASK_SECONDS and _often(self._heard, now - HEARD_SECONDS))
        )

    def _held_up(self, now: float) -> bool:
        return now - max(self.look_at, self._claimed_at) >= HELD_UP_SECONDS


def _often(times: deque[float], since: float) -> bool:
    return len(times) == OFTEN and times[0] > since
