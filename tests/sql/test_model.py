"""The real statements against a small model of what a job's row may become, in sequences that nobody would think of.

Two workers' sessions, a caller with an open transaction and an operator act in turn. The model is the state machine of
`asyncq.outcome` and nothing else: what a job is, who holds it, and what each act makes of it. After each act the whole
table is compared with it. Time moves by ageing rows.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, ClassVar, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from asyncq.db import jobs
from asyncq.db.connection import Session, address_of
from asyncq.db.defer import Stored, few, one
from asyncq.db.instants import START
from asyncq.job import JobState, Lease
from asyncq.outcome import Cancelled, Completed, Discarded, Outcome, Released, Retried, Snoozed
from tests.sql import rows

T = TypeVar("T")

QUEUES: Sequence[str] = ("a", "b")
PRIORITIES = (5, 0, -1)
HOUR = 3600.0

SLACK_SECONDS = 30.0
"""How long ago the database may have reckoned with a delay from now. Much more than it takes, on a busy machine too."""

OUTCOMES: Sequence[Outcome] = (
    Completed(),
    Retried(0.0, "failed"),
    Retried(HOUR, "failed"),
    Snoozed(0.0),
    Snoozed(HOUR),
    Released(),
    Cancelled("not wanted"),
    Discarded("failed for good"),
)


@dataclass
class Modelled:
    """A row, as it should be."""

    queue: str
    priority: int
    max_attempts: int
    due: bool
    state: JobState = JobState.AVAILABLE
    attempts: int = 0
    token: int | None = None
    expired: bool = False
    aged: bool = False
    error: str | None = None
    run_at: Any = None  # None: as the database has it; what was done last changed it
    delay: float | None = None  # if so, from now, in seconds; None: whenever

    def available(self, *, refund: int = 0) -> None:
        self.state, self.token, self.expired = JobState.AVAILABLE, None, False
        self.attempts = max(self.attempts - refund, 0)

    def ended(self, state: JobState) -> None:
        self.state, self.token, self.expired, self.aged = state, None, False, False

    def later(self, delay: float) -> None:
        self.due, self.run_at, self.delay = delay == 0.0, None, delay


class World:
    """The connections of one test, and the event loop that they live in."""

    def __init__(self, dsn: str) -> None:
        self.runner = asyncio.Runner()
        self.sessions = [Session(address_of(dsn, f"model {number}")) for number in (1, 2)]
        self.operator, self.caller = self.do(self._connect(dsn))
        self.do(self.operator.execute("alter table asyncq.jobs set (autovacuum_enabled = false)"))
        self.tokens = count(1)

    async def _connect(self, dsn: str) -> tuple[psycopg.AsyncConnection[Any], psycopg.AsyncConnection[Any]]:
        return (
            await psycopg.AsyncConnection.connect(dsn, autocommit=True),
            await psycopg.AsyncConnection.connect(dsn),
        )

    def do(self, act: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(act)

    def close(self) -> None:
        async def close() -> None:
            for each in (*self.sessions, self.operator, self.caller):
                await each.close()

        self.do(close())
        self.runner.close()


@dataclass
class Act:
    """What can be done. One that has no weight of its own is chosen as often as any other."""

    run: Callable[..., None]
    drawn: dict[str, st.SearchStrategy[Any]]
    when: Callable[["Machine"], object]

    def __repr__(self) -> str:
        return self.run.__name__


ACTS: list[Act] = []


def act(
    *, weight: int = 1, when: Callable[["Machine"], object] = lambda _: True, **drawn: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Note what can be done, how often, when, and with which arguments."""

    def noted(run: Callable[..., None]) -> Callable[..., None]:
        ACTS.extend([Act(run, drawn, when)] * weight)
        return run

    return noted


class Machine(RuleBasedStateMachine):
    """Do something, and expect what the model says."""

    world: ClassVar[World]

    @initialize()
    def start(self) -> None:
        self.jobs: dict[int, Modelled] = {}
        self.uncommitted: dict[int, Modelled] = {}
        self.locked: set[int] = set()
        self.leases: list[Lease] = []
        # The same acts find the same rows, in the same places, each time.
        self.sql("truncate asyncq.jobs restart identity")

    def sql(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        async def execute() -> list[tuple[Any, ...]]:
            cursor = await self.world.operator.execute(statement.encode(), params or None)
            return await cursor.fetchall() if cursor.description else []

        return self.world.do(execute())

    def held(self, lease: Lease) -> Modelled | None:
        """The job of a lease that is still good."""
        job = self.jobs.get(lease.id)
        return job if job is not None and job.token == lease.token else None

    def untouched(self, state: JobState) -> list[int]:
        """Jobs in a state that the caller's transaction does not hold."""
        return [each for each, job in self.jobs.items() if job.state is state and each not in self.locked]

    def unwritten(self, leases: Sequence[Lease]) -> jobs.Unwritten:
        """What of these cannot be written now: its row is locked, or its lease is lost."""
        found: jobs.Unwritten = {}
        for lease in leases:
            if self.held(lease) is None:
                found[lease.id, lease.token] = False
            elif lease.id in self.locked:
                found[lease.id, lease.token] = True
        return found

    @rule(data=st.data())
    def something(self, data: st.DataObject) -> None:
        """One rule for all: of many, Hypothesis leaves out half in each sequence, and most would claim nothing."""
        chosen = data.draw(st.sampled_from([each for each in ACTS if each.when(self)]))
        chosen.run(self, **{name: data.draw(strategy, label=name) for name, strategy in chosen.drawn.items()})

    # ------------------------------------------------------------------------------------------------- the caller

    @act(
        weight=2,
        queue=st.sampled_from(QUEUES),
        priority=st.sampled_from(PRIORITIES),
        later=st.sampled_from([False, False, True]),
        max_attempts=st.integers(1, 3),
        many=st.integers(1, 3),
        transaction=st.sampled_from([False, False, True]),
    )
    def defer(self, queue: str, priority: int, max_attempts: int, many: int, *, later: bool, transaction: bool) -> None:
        connection = self.world.caller if transaction else self.world.operator
        stored = Stored(queue, "t", priority, None, HOUR if later else 0.0, max_attempts, 60.0)

        async def defer() -> list[int]:
            if many == 1:
                return [(await one(connection, "asyncq", stored, "{}"))[0]]
            return await few(connection, "asyncq", stored, ["{}"] * many)

        ids = self.world.do(defer())
        assert len(ids) == many
        assert ids == sorted(ids)
        into = self.uncommitted if transaction else self.jobs
        into |= {each: Modelled(queue, priority, max_attempts, not later) for each in ids}

    @act(when=lambda self: self.uncommitted or self.locked)
    def commit(self) -> None:
        self.world.do(self.world.caller.commit())
        self.jobs |= self.uncommitted
        self.uncommitted.clear()
        self.locked.clear()

    @act(when=lambda self: self.uncommitted or self.locked)
    def roll_back(self) -> None:
        self.world.do(self.world.caller.rollback())
        self.uncommitted.clear()
        self.locked.clear()

    @act(when=lambda self: self.jobs, data=st.data())
    def lock(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        self.world.do(rows.rows(self.world.caller, "select 1 from asyncq.jobs where id = %s for update", job))
        self.locked.add(job)

    # ------------------------------------------------------------------------------------------------ the workers

    @act(
        weight=4,
        when=lambda self: self.jobs,
        data=st.data(),
        worker=st.integers(0, 1),
        queues=st.permutations(QUEUES),
        slots=st.sampled_from([8, 1, 2, 4]),
    )
    def claim(self, data: st.DataObject, worker: int, queues: list[str], slots: int) -> None:
        served = queues[: data.draw(st.sampled_from([2, 2, 1]))]
        finished = data.draw(self.some_leases())
        token = next(self.world.tokens)
        expected = [
            each
            for queue in served
            for each in sorted(
                (each for each in self.untouched(JobState.AVAILABLE) if self.jobs[each].queue == queue),
                key=lambda each: (-self.jobs[each].priority, self.jobs[each].run_at, each),
            )
            if self.jobs[each].due
        ][:slots]
        unwritten = self.unwritten(finished)
        found = self.world.do(
            jobs.claim(
                self.world.sessions[worker],
                "asyncq",
                asked=[jobs.Asked(queue, slots, [(priority, START) for priority in PRIORITIES]) for queue in served],
                free=slots,
                tasks=["t"],
                here=[],
                worker=f"worker {worker}",
                token=token,
                finished=finished,
            )
        )
        assert sorted(row.id for row in found.rows) == sorted(expected)
        order = [(-row.priority, row.run_at, row.id) for row in found.rows]
        assert order == sorted(order)
        assert found.unwritten == unwritten
        for lease in finished:
            if (lease.id, lease.token) not in unwritten:
                del self.jobs[lease.id]
        for row in found.rows:
            job = self.jobs[row.id]
            job.state, job.token, job.expired = JobState.RUNNING, token, False
            job.attempts += 1
            assert (row.queue, row.task, row.args, row.priority) == (job.queue, "t", "{}", job.priority)
            assert (row.attempts, row.max_attempts) == (job.attempts, job.max_attempts)
            self.leases.append(Lease(row.id, token, 60.0))

    def some_leases(self) -> st.SearchStrategy[list[Lease]]:
        """Leases that are good, and such that were lost, of the same jobs above all."""
        good = [lease for lease in self.leases if self.held(lease)]
        again = {lease.id for lease in good}
        rivals = [lease for lease in self.leases if lease.id in again]
        some = [st.lists(st.sampled_from(each), unique=True, min_size=1, max_size=4) for each in (good, rivals) if each]
        return st.one_of(
            *some, st.lists(st.sampled_from(self.leases), unique=True, max_size=4) if self.leases else st.just([])
        )

    @act(weight=4, when=lambda self: self.leases, data=st.data(), worker=st.integers(0, 1))
    def finish(self, data: st.DataObject, worker: int) -> None:
        ended = [(lease, data.draw(st.sampled_from(OUTCOMES))) for lease in data.draw(self.some_leases())]
        unwritten = self.unwritten([lease for lease, _ in ended])
        session = self.world.sessions[worker]
        found = self.world.do(rows.finish(session, *[(lease.id, lease.token, outcome) for lease, outcome in ended]))
        assert found == unwritten
        for lease, outcome in ended:
            if (lease.id, lease.token) not in unwritten:
                self.ended(lease.id, outcome)

    def ended(self, job_id: int, outcome: Outcome) -> None:
        job = self.jobs[job_id]
        match outcome:
            case Completed():
                del self.jobs[job_id]
            case Retried(delay, error):
                job.available()
                job.later(delay)
                job.error = error
            case Snoozed(delay):
                job.available(refund=1)
                job.later(delay)
            case Released():
                job.available(refund=1)
            case Cancelled(reason):
                job.ended(JobState.CANCELLED)
                job.error = reason
            case Discarded(error):
                job.ended(JobState.DISCARDED)
                job.error = error

    @act(when=lambda self: self.leases, data=st.data(), worker=st.integers(0, 1))
    def heartbeat(self, data: st.DataObject, worker: int) -> None:
        leases = data.draw(self.some_leases())
        unwritten = self.unwritten(leases)
        assert self.world.do(jobs.heartbeat(self.world.sessions[worker], "asyncq", leases)) == unwritten
        for lease in leases:
            if (lease.id, lease.token) not in unwritten:
                self.jobs[lease.id].expired = False

    @act(when=lambda self: self.leases, data=st.data(), worker=st.integers(0, 1))
    def release(self, data: st.DataObject, worker: int) -> None:
        """Give back what claims took whose answer never came."""
        tokens = {lease.token for lease in data.draw(self.some_leases())}
        given_back = [each for each in self.untouched(JobState.RUNNING) if self.jobs[each].token in tokens]
        found = self.world.do(jobs.release(self.world.sessions[worker], "asyncq", sorted(tokens)))
        assert found == len(given_back)
        for each in given_back:
            self.jobs[each].available(refund=1)

    @act(when=lambda self: self.leases, worker=st.integers(0, 1))
    def rescue(self, worker: int) -> None:
        expired = [each for each in self.untouched(JobState.RUNNING) if self.jobs[each].expired]
        found = self.world.do(jobs.rescue(self.world.sessions[worker], "asyncq", batch=1_000))
        rescued = {job_id: state for job_id, _, _, state, _, _ in found.rescued}
        if not found.mine:
            # It was held up for a second, and leaves it to the next.
            assert not rescued
            return
        assert sorted(rescued) == sorted(expired)
        for each, state in rescued.items():
            job = self.jobs[each]
            if job.attempts >= job.max_attempts:
                job.ended(JobState.DISCARDED)
            else:
                job.available()
            assert state is job.state
            job.error = "The lease of attempt"

    @act(when=lambda self: any(job.aged for job in self.jobs.values()), worker=st.integers(0, 1))
    def clean_up(self, worker: int) -> None:
        retention = dict.fromkeys(QUEUES, timedelta(hours=1))
        gone = [
            each
            for state in (JobState.CANCELLED, JobState.DISCARDED)
            for each in self.untouched(state)
            if self.jobs[each].aged
        ]
        found = self.world.do(jobs.cleanup(self.world.sessions[worker], "asyncq", retention=retention, batch=1_000))
        assert found == len(gone)
        for each in gone:
            del self.jobs[each]

    # ----------------------------------------------------------------------------------------------- the operator

    @act(when=lambda self: self.jobs and not self.locked, data=st.data(), queue=st.sampled_from(QUEUES))
    def replay(self, data: st.DataObject, queue: str) -> None:
        dead = [each for each, job in self.jobs.items() if job.queue == queue and job.state is JobState.DISCARDED]
        named = None
        if self.jobs and data.draw(st.booleans()):
            named = data.draw(st.lists(st.sampled_from(sorted(self.jobs)), max_size=3, unique=True))
            ended = (JobState.CANCELLED, JobState.DISCARDED)
            dead = [each for each in named if self.jobs[each].queue == queue and self.jobs[each].state in ended]
        assert self.world.do(jobs.replay(self.world.operator, "asyncq", queue=queue, ids=named)) == sorted(dead)
        for each in dead:
            job = self.jobs[each]
            job.available()
            job.attempts = 0
            job.later(0.0)

    # ------------------------------------------------------------------------------------------------------- time

    @act(when=lambda self: self.untouched(JobState.RUNNING))
    def leases_run_out(self) -> None:
        running = self.untouched(JobState.RUNNING)
        self.sql("update asyncq.jobs set leased_until = now() - interval '1 second' where id = any(%s)", running)
        for each in running:
            self.jobs[each].expired = True

    @act(weight=2, when=lambda self: any(not job.due for job in self.jobs.values()))
    def jobs_fall_due(self) -> None:
        waiting = [each for each in self.untouched(JobState.AVAILABLE) if not self.jobs[each].due]
        # In another order than that of their ids.
        self.sql("update asyncq.jobs set run_at = now() - interval '1 hour' * (id %% 5) where id = any(%s)", waiting)
        for each in waiting:
            self.jobs[each].due, self.jobs[each].run_at, self.jobs[each].delay = True, None, None

    @act(when=lambda self: self.untouched(JobState.CANCELLED) or self.untouched(JobState.DISCARDED))
    def retention_ends(self) -> None:
        ended = [*self.untouched(JobState.CANCELLED), *self.untouched(JobState.DISCARDED)]
        self.sql("update asyncq.jobs set finished_at = now() - interval '2 hours' where id = any(%s)", ended)
        for each in ended:
            self.jobs[each].aged = True

    # ------------------------------------------------------------------------------------------------ and after each

    @invariant()
    def the_table_is_as_the_model_says(self) -> None:
        there = {
            row[0]: row[1:]
            for row in self.sql(
                "select id, queue, priority, max_attempts, state, attempts, lease_token, run_at, last_error,"
                " locked_by is not null, leased_until > now(), finished_at is not null,"
                " extract(epoch from run_at - now())::float8 from asyncq.jobs"
            )
        }
        assert there.keys() == self.jobs.keys()
        for each, job in self.jobs.items():
            queue, priority, max_attempts, state, attempts, token, run_at, error, *others, wait = there[each]
            held, lease, finished = others
            assert (queue, priority, max_attempts) == (job.queue, job.priority, job.max_attempts)
            assert (state, attempts, token) == (job.state.value, job.attempts, job.token)
            running = job.state is JobState.RUNNING
            assert held == running
            assert lease == (not job.expired if running else None)
            assert finished == (job.state in (JobState.CANCELLED, JobState.DISCARDED))
            assert (error or "").startswith(job.error or "")
            assert bool(error) == bool(job.error)
            if job.run_at is None:
                assert job.delay is None or job.delay - SLACK_SECONDS < wait <= job.delay
                job.run_at = run_at
            assert run_at == job.run_at

    def teardown(self) -> None:
        self.world.do(self.world.caller.rollback())


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    world = World(dsn)
    yield world
    world.close()


@pytest.mark.timeout(300)
def test_the_statements_agree_with_the_model(world: World) -> None:
    class Here(Machine):
        pass

    Here.world = world
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=25,
            stateful_step_count=60,
            deadline=None,
            # To shorten a failure would take minutes, on a real server; its 60 steps at most can be read.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
