"""The positions in lanes, against a model of the table: nothing that was announced is left behind them.

The model has transactions that take their jobs' times when they lock the table and commit whenever they like, other
workers' claims that are undone, jobs put into the past and announced as such, tasks that are not known here, and
claims and rounds of the horizon whose answers come later than what they saw.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncq.db.instants import LAST, START, Position
from asyncq.db.jobs import Asked, Claim, ClaimedRow
from asyncq.worker.horizon import Past
from asyncq.worker.lanes import HIGHEST, LOWEST, Lanes, Look

SLOTS = 3


@dataclass
class Row:
    id: int
    priority: int
    run_at: int
    known: bool = True
    visible: bool = False
    gone: bool = False
    locked: bool = False

    @property
    def waits(self) -> bool:
        return self.visible and not self.gone


@dataclass
class Transaction:
    name: str
    rows: list[Row] = field(default_factory=list)
    past: bool = False


def claimed(row: Row) -> ClaimedRow:
    return ClaimedRow(row.id, "q", "t", "{}", row.priority, 1, 10, 60.0, row.run_at, row.run_at)


class World:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.clock = 0
        self.ids = count(1)
        self.rows: list[Row] = []
        self.open: list[Transaction] = []
        self.lanes = Lanes()
        self.past = Past()
        self.wanted: Look | None = Look.ALL
        self.ready = False
        # What a statement under way has seen: called when its answer comes.
        self.claim_answer: Callable[[], None] | None = None
        self.round_answer: Callable[[], None] | None = None

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def want(self, look: Look) -> None:
        self.wanted = max(self.wanted or look, look)

    # ------------------------------------------------------------------------------------------------ everybody else

    def puts_jobs_in(self) -> None:
        rows = [
            Row(next(self.ids), self.random.choice([0, 0, 1]), self.tick() + self.random.choice([0, 0, 0, 3]),
                known=self.random.random() < 0.8)
            for _ in range(self.random.randint(1, 4))
        ]  # fmt: skip
        self.rows += rows
        self.open.append(Transaction(f"t{next(self.ids)}", rows))

    def puts_a_job_into_the_past(self) -> None:
        row = Row(next(self.ids), self.random.choice([0, 1]), self.tick() - self.random.randint(1, 30))
        self.rows.append(row)
        self.open.append(Transaction(f"t{next(self.ids)}", [row], past=True))

    def ends(self) -> None:
        if self.open:
            self.end(self.open.pop(self.random.randrange(len(self.open))), commits=self.random.random() < 0.8)

    def end(self, transaction: Transaction, *, commits: bool) -> None:
        self.tick()
        for row in transaction.rows:
            row.visible, row.gone = commits, not commits
        if commits:
            self.want(Look.ALL if transaction.past else Look.BACK)

    def another_worker_claims(self) -> None:
        wanted = self.random.randint(1, 3)
        for row in sorted(self.rows, key=lambda row: (-row.priority, row.run_at, row.id)):
            if wanted and row.waits and not row.locked and row.run_at <= self.clock:
                row.locked = True
                wanted -= 1

    def another_workers_claims_end(self) -> None:
        done = self.random.random() < 0.7
        for row in self.rows:
            if row.locked:
                row.locked, row.gone = False, done

    # ---------------------------------------------------------------------------------------------------- the worker

    def reads_on(self) -> None:
        self.claims(Look.ON)

    def looks(self) -> None:
        if self.wanted is not None and self.claim_answer is None:
            way, self.wanted = self.wanted, None
            self.claims(way)

    def claims(self, way: Look) -> None:
        if self.claim_answer is not None:
            return
        self.ready = False
        asked = self.lanes.asked("q", SLOTS, way)
        now = self.tick()
        taken: list[Row] = []
        for priority, position in asked.lanes:
            due = [row for row in self.waiting(priority) if row.known and not row.locked and row.run_at <= now]
            taken += [row for row in due if (row.run_at, row.id) > position][: SLOTS - len(taken)]
        opened = [each for top, bottom in asked.gaps for each in self.between(top, bottom)]
        for row in taken:
            row.gone = True
        claim = Claim([claimed(row) for row in taken], {}, opened, {}, now, 0.0)
        self.claim_answer = lambda: self.note(asked, claim, way)

    def waiting(self, priority: int) -> list[Row]:
        rows = [row for row in self.rows if row.waits and row.priority == priority]
        return sorted(rows, key=lambda row: (row.run_at, row.id))

    def between(self, top: int, bottom: int) -> list[tuple[str, int, Position | None]]:
        found: list[tuple[str, int, Position | None]] = []
        for priority in sorted({row.priority for row in self.rows if row.waits}, reverse=True):
            if bottom < priority < top:
                known = [Position(row.run_at, row.id) for row in self.waiting(priority) if row.known]
                found.append(("q", priority, known[0] if known else None))
        return found

    def note(self, asked: Asked, claim: Claim, way: Look) -> None:
        noted = self.lanes.note([asked], claim, SLOTS)
        self.ready = bool(noted.full)
        if noted.opened or (way is Look.ON and not noted.full):
            self.want(Look.BACK)

    def claim_comes_back(self) -> None:
        answer, self.claim_answer = self.claim_answer, None
        if answer is not None:
            answer()

    def round_begins(self) -> None:
        if self.round_answer is not None:
            return
        approved = self.past.approved
        lanes = self.lanes.behind(approved)
        now = self.tick()
        writers = [transaction.name for transaction in self.open]
        over = not set(writers) & set(self.past.awaited)
        first: list[Position | None] = []
        for _, priority, position in lanes:
            rows = [Position(row.run_at, row.id) for row in self.waiting(priority) if row.known]
            first.append(next((each for each in rows if each > position and each.run_at <= approved), None))

        def answer() -> None:
            assert self.past.note(now, writers, over=over)
            self.lanes.approve(approved, lanes, first)

        self.round_answer = answer

    def round_comes_back(self) -> None:
        answer, self.round_answer = self.round_answer, None
        if answer is not None:
            answer()

    # --------------------------------------------------------------------------------------------------- what must be

    def check(self) -> None:
        """Nothing that was announced, and is not to be looked for from the start, lies behind a safe position."""
        if self.wanted is Look.ALL or self.claim_answer is not None:
            return
        safe = dict(self.lanes.asked("q", 1, Look.BACK).lanes)
        for row in self.rows:
            if row.waits and row.known and row.priority in safe:
                assert Position(row.run_at, row.id) > safe[row.priority], row

    def settle(self) -> None:
        """Everybody ends, and the worker does what it was told: then no due job that it knows is left."""
        self.claim_comes_back()
        self.round_comes_back()
        for transaction in self.open:
            self.end(transaction, commits=True)
        for row in self.rows:
            row.locked = False
        self.clock += 10
        # An undone claim of another worker is announced by nobody: the look back that comes anyway finds it.
        self.want(Look.BACK)
        while self.wanted is not None or self.ready:
            self.reads_on() if self.ready else self.looks()
            self.claim_comes_back()
        assert [row for row in self.rows if row.waits and row.known] == []


WEIGHTS: dict[Callable[[World], None], int] = {
    World.puts_jobs_in: 6,
    World.puts_a_job_into_the_past: 1,
    World.ends: 6,
    World.another_worker_claims: 1,
    World.another_workers_claims_end: 2,
    World.reads_on: 3,
    World.looks: 4,
    World.claim_comes_back: 8,
    World.round_begins: 6,
    World.round_comes_back: 8,
}


@pytest.mark.parametrize("batch", range(10))
def test_nothing_is_left_behind(batch: int) -> None:
    for seed in range(batch * 200, batch * 200 + 200):
        world = World(Random(seed))
        for step in world.random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=80):
            step(world)
            world.check()
        world.settle()


def look(lanes: Lanes, way: Look, claim: Claim, slots: int = SLOTS) -> Asked:
    asked = lanes.asked("q", slots, way)
    lanes.note([asked], claim, slots)
    return asked


def test_a_worker_that_knows_nothing_asks_for_everything() -> None:
    assert Lanes().asked("q", 5, Look.BACK) == Asked("q", 5, [], [(HIGHEST, LOWEST)], later=True)


def test_it_reads_on_behind_what_it_took_and_looks_back_from_the_start() -> None:
    lanes = Lanes()
    look(lanes, Look.ALL, Claim([], {}, [("q", 0, Position(100, 7))], {}, 1_000, 0.0))
    row = ClaimedRow(7, "q", "t", "{}", 0, 1, 10, 60.0, 100, 100)
    look(lanes, Look.ON, Claim([row], {}, [], {}, 1_000, 0.0), slots=1)
    assert lanes.asked("q", 1, Look.ON).lanes == [(0, Position(100, 7))]
    assert lanes.asked("q", 1, Look.BACK).lanes == [(0, START)]
    look(lanes, Look.ON, Claim([], {}, [], {}, 2_000, 0.0))
    assert lanes.asked("q", 1, Look.ON).lanes == [(0, Position(2_000, LAST))]
    lanes.approve(1_500, lanes.behind(1_500), [None])
    assert lanes.asked("q", 1, Look.BACK).lanes == [(0, Position(1_500, LAST))]
    assert lanes.behind(1_500) == []


def test_gaps_lie_between_the_lanes_that_are_known() -> None:
    lanes = Lanes()
    opened: list[tuple[str, int, Position | None]] = [("q", each, Position(1, 1)) for each in (32_767, 5, 4, 0)]
    look(lanes, Look.ALL, Claim([], {}, opened, {}, 1_000, 0.0))
    assert list(lanes.asked("q", 1, Look.BACK).gaps) == [(32_767, 5), (4, 0), (0, LOWEST)]


@given(st.lists(st.integers(-32_768, 32_767), unique=True, max_size=20))
def test_lanes_are_read_from_the_highest_down(priorities: list[int]) -> None:
    lanes = Lanes()
    for priority in priorities:
        look(lanes, Look.BACK, Claim([], {}, [("q", priority, None)], {}, 1_000, 0.0))
    assert [priority for priority, _ in lanes.asked("q", 1, Look.ON).lanes] == sorted(priorities, reverse=True)


def test_empty_lanes_are_forgotten_only_when_there_are_many() -> None:
    lanes = Lanes()
    for priority in range(150):
        look(lanes, Look.BACK, Claim([], {}, [("q", priority, None)], {}, 1_000, 0.0))
    seen: list[tuple[str, int, Position | None]] = [("q", each, Position(1, 1)) for each in range(0, 150, 10)]
    look(lanes, Look.ALL, Claim([], {}, seen, {}, 2_000, 0.0))
    assert [priority for priority, _ in lanes.asked("q", 1, Look.ON).lanes] == list(range(140, -1, -10))
