"""Every interleaving of a few senders and workers under the protocol of `asyncq.worker.quiet`, by exhaustion.

A sender begins (its lock on the jobs table, its row), decides whether to notify, and commits or not: the row is
visible, then its lock is gone, then the notification is delivered. How long it stays in each step is anybody's guess,
so that a transaction held open, or prepared, is one that takes its time.

A worker listens, tries K shared, reads who has the lock on the jobs table, looks, looks again as these end, and sleeps.
From anywhere it may give K back and look by itself, try to keep K, give that up, and come back. In every state it may
crash, vanish so that the server does not notice yet, or lose its connection without noticing.

What must not be: a worker that sleeps, has nothing to look for or to wait for, is not about to hear anything, and yet a
job is visible and unclaimed. That is asked of each worker, whatever the others promise. Each of the mutations leaves
out one thing that the protocol does, and a hole is found: so the model would see it, and the thing is needed.

Two senders and two workers are 497,504 states, without a hole; they take too long for a test.
"""

from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import pytest


class Step(IntEnum):
    """Of a sender."""

    NEW = 0
    DECIDED_LOUD = 1  # only under a mutation: before it has its lock
    DECIDED_QUIET = 2
    BEGUN = 3
    LOUD = 4
    QUIET = 5
    VISIBLE_LOUD = 6
    VISIBLE_QUIET = 7
    SIGNALS = 8
    OVER = 9


HOLDS_LOCK = {Step.BEGUN, Step.LOUD, Step.QUIET, Step.VISIBLE_LOUD, Step.VISIBLE_QUIET}


class Sender(NamedTuple):
    step: Step = Step.NEW
    # Its job, and who listened at its commit and is yet to be told.
    job: str = "none"
    tells: frozenset[int] = frozenset()


class Worker(NamedTuple):
    # off, reads first (under a mutation), takes, reads, loops (and sleeps with nothing to do), looks, hot, hot looks
    step: str = "off"
    # none, fine, lost (not noticed by the worker), kept (not noticed by the server)
    connection: str = "none"
    lock: str = ""
    ready: bool = False
    awaits: frozenset[int] = frozenset()
    hears: bool = False


class World(NamedTuple):
    senders: tuple[Sender, ...]
    workers: tuple[Worker, ...]

    def sender(self, place: int, **changes: object) -> "World":
        changed = self.senders[place]._replace(**changes)
        return self._replace(senders=(*self.senders[:place], changed, *self.senders[place + 1 :]))

    def worker(self, place: int, **changes: object) -> "World":
        changed = self.workers[place]._replace(**changes)
        return self._replace(workers=(*self.workers[:place], changed, *self.workers[place + 1 :]))

    def told_no_more(self, place: int) -> "World":
        return self._replace(senders=tuple(each._replace(tells=each.tells - {place}) for each in self.senders))


PROTOCOL = "the protocol as it is"

MUTATIONS = [
    "nobody is waited for",
    "who has the lock is read before K is held",
    "no look when one of these has ended",
    "idle workers hold nothing",
    "the sender decides before it has its lock",
    "after a reconnection only one look",
    "K is held on another connection",
    "a prepared transaction counts as ended",
]


def moves(world: World, mutation: str) -> Iterator[tuple[str, World]]:
    """Give all that can happen next."""
    for place, sender in enumerate(world.senders):
        yield from sender_moves(world, place, sender, mutation)
    locked = frozenset(place for place, sender in enumerate(world.senders) if sender.step in HOLDS_LOCK)
    for place, worker in enumerate(world.workers):
        if worker.step == "off":
            yield from off_moves(world, place, worker, mutation)
        else:
            yield from failures(world, place, worker, mutation)
            yield from worker_moves(world, place, worker, locked, mutation)


def sender_moves(  # noqa: C901 - a table of moves
    world: World, place: int, sender: Sender, mutation: str
) -> Iterator[tuple[str, World]]:
    kept = any(worker.lock == "exclusive" for worker in world.workers)
    name = f"sender {place}"
    match sender.step:
        case Step.NEW if mutation == "the sender decides before it has its lock":
            yield f"{name} decides", world.sender(place, step=Step.DECIDED_QUIET if kept else Step.DECIDED_LOUD)
        case Step.NEW:
            yield f"{name} begins", world.sender(place, step=Step.BEGUN)
        case Step.DECIDED_LOUD | Step.DECIDED_QUIET:
            decided = Step.LOUD if sender.step is Step.DECIDED_LOUD else Step.QUIET
            yield f"{name} begins", world.sender(place, step=decided)
        case Step.BEGUN:
            yield f"{name} decides", world.sender(place, step=Step.QUIET if kept else Step.LOUD)
            yield f"{name} aborts", world.sender(place, step=Step.OVER)
        case Step.LOUD:
            yield f"{name} aborts", world.sender(place, step=Step.OVER)
            listening = frozenset(each for each, worker in enumerate(world.workers) if worker.connection == "fine")
            yield f"{name} commits", world.sender(place, step=Step.VISIBLE_LOUD, job="waits", tells=listening)
        case Step.QUIET:
            yield f"{name} aborts", world.sender(place, step=Step.OVER)
            yield f"{name} commits in silence", world.sender(place, step=Step.VISIBLE_QUIET, job="waits")
        case Step.VISIBLE_LOUD:
            yield f"{name}'s lock is gone", world.sender(place, step=Step.SIGNALS)
        case Step.VISIBLE_QUIET:
            yield f"{name}'s lock is gone", world.sender(place, step=Step.OVER)
        case Step.SIGNALS:
            after = world.sender(place, step=Step.OVER, tells=frozenset[int]())
            for each in sender.tells:
                if world.workers[each].connection == "fine":
                    after = after.worker(each, hears=True)
            yield f"{name} notifies", after
        case Step.OVER:
            pass


def off_moves(world: World, place: int, worker: Worker, mutation: str) -> Iterator[tuple[str, World]]:
    if worker.connection == "kept":
        yield f"the server gives worker {place} up", world.worker(place, connection="none", lock="")
    else:
        yield f"worker {place} listens", listens(world, place, mutation)


def listens(world: World, place: int, mutation: str, *, again: bool = False) -> World:
    step = "takes"
    if mutation == "who has the lock is read before K is held":
        step = "reads first"
    if again and mutation == "after a reconnection only one look":
        step = "takes only"
    fresh = Worker(step, connection="fine", ready=True)
    return world.worker(place, **fresh._asdict())


def failures(world: World, place: int, worker: Worker, mutation: str) -> Iterator[tuple[str, World]]:
    gone = world.told_no_more(place)
    yield f"worker {place} crashes", gone.worker(place, **Worker()._asdict())
    if worker.lock:
        vanished = Worker(connection="kept", lock=worker.lock)
        yield f"worker {place} vanishes, its lock stays", gone.worker(place, **vanished._asdict())
    if worker.connection == "lost":
        yield f"worker {place} listens again", listens(world, place, mutation, again=True)
    elif mutation != "K is held on another connection":
        yield f"worker {place} is cut off", gone.worker(place, connection="lost", lock="", hears=False)
    elif worker.lock:
        yield f"worker {place} loses its lock", world.worker(place, lock="")


def worker_moves(  # noqa: C901, PLR0912 - a table of moves
    world: World, place: int, worker: Worker, locked: frozenset[int], mutation: str
) -> Iterator[tuple[str, World]]:
    name, fine = f"worker {place}", worker.connection == "fine"
    others = [each.lock for other, each in enumerate(world.workers) if other != place]
    if fine and worker.hears:
        yield f"{name} hears", world.worker(place, ready=True, hears=False)
    match worker.step:
        case "reads first":
            yield f"{name} reads {set(locked)}", world.worker(place, step="takes", awaits=locked)
        case "takes" | "takes only" if fine and "exclusive" in others:
            yield f"{name} is refused", world.worker(place, step="hot", lock="", ready=True, awaits=frozenset[int]())
        case "takes" | "takes only" if fine:
            reads_first = mutation == "who has the lock is read before K is held"
            yield (
                f"{name} holds K shared",
                world.worker(
                    place,
                    step="loops" if reads_first or worker.step == "takes only" else "reads",
                    lock="" if mutation == "idle workers hold nothing" else "shared",
                    ready=True,
                    awaits=worker.awaits if reads_first else frozenset[int](),
                ),
            )
        case "reads" if fine:
            awaits = frozenset[int]() if mutation == "nobody is waited for" else locked
            yield f"{name} reads {set(awaits)}", world.worker(place, step="loops", ready=True, awaits=awaits)
        case "loops":
            yield f"{name} goes hot", world.worker(place, step="hot", lock="", ready=True, awaits=frozenset[int]())
            if worker.ready:
                yield f"{name} begins to look", world.worker(place, step="looks", ready=False)
            if worker.awaits - locked:
                ready = worker.ready or mutation != "no look when one of these has ended"
                yield f"{name} sees some ended", world.worker(place, awaits=worker.awaits & locked, ready=ready)
        case "hot":
            yield f"{name} begins to look", world.worker(place, step="hot looks", ready=False)
            if fine and not worker.lock and not any(others):
                yield f"{name} keeps K", world.worker(place, lock="exclusive", ready=True)
            if fine and worker.lock:
                yield f"{name} gives way", world.worker(place, lock="", ready=True)
            if fine:
                first = "reads first" if mutation == "who has the lock is read before K is held" else "takes"
                yield f"{name} is dry", world.worker(place, step=first, ready=True, awaits=frozenset[int]())
        case "looks" | "hot looks":
            after = world
            for each, sender in enumerate(world.senders):
                if sender.job == "waits":
                    after = after.sender(each, job="claimed")
            yield f"{name} has looked", after.worker(place, step="loops" if worker.step == "looks" else "hot")
        case _:
            pass
    if mutation == "a prepared transaction counts as ended":
        for each in worker.awaits:
            yield f"sender {each} is prepared", world.worker(place, ready=True, awaits=worker.awaits - {each})


def missed(world: World) -> bool:
    """Say whether somebody sleeps beside a job that nobody will tell of."""
    return any(
        worker == Worker("loops", "fine", worker.lock)
        and any(sender.job == "waits" for sender in world.senders)
        and not any(place in sender.tells for sender in world.senders)
        for place, worker in enumerate(world.workers)
    )


def explore(mutation: str, senders: int, workers: int) -> tuple[int, list[str] | None]:
    """Count the states; gives also the shortest way to a hole, if there is one."""
    first = World((Sender(),) * senders, (Worker(),) * workers)
    came_from: dict[World, tuple[str, World] | None] = {first: None}
    todo = deque([first])
    while todo:
        world = todo.popleft()
        if missed(world):
            way: list[str] = []
            step = came_from[world]
            while step is not None:
                way.append(step[0])
                step = came_from[step[1]]
            return len(came_from), way[::-1]
        for name, after in moves(world, mutation):
            if after not in came_from:
                came_from[after] = (name, world)
                todo.append(after)
    return len(came_from), None


@pytest.mark.parametrize(("senders", "workers"), [(1, 1), (2, 1), (1, 2)])
def test_no_wake_up_is_lost(senders: int, workers: int) -> None:
    states, hole = explore(PROTOCOL, senders, workers)
    assert hole is None, " > ".join(hole)
    assert states > 300


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_nothing_of_it_can_be_left_out(mutation: str) -> None:
    assert explore(mutation, 1, 1)[1] or explore(mutation, 1, 2)[1]
