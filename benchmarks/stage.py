"""A stage: a fresh database, one process of a system that produces, and its workers; and what can be done there.

Times are this process's monotonic clock, from just before a request is sent. Costs are the kernel's account of the
workers (or of the producer, where producing is measured) and of all the server's processes.
"""

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psycopg

from benchmarks.account import processor_seconds
from benchmarks.environments import Description
from benchmarks.process import SystemFailedError, SystemProcess
from benchmarks.servers import Postgres, Redis
from benchmarks.systems.protocol import SLOTS, Handled

Mode = Literal["tuned", "default"]
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    jobs: int = 20_000
    singles: int = 1_000
    streamed: int = 3_000
    timed: int = 300
    pause: float = 0.02
    limit: float = 45.0  # a drain that takes longer is cut off, and its rate is that of this time
    backlog: int = 300_000
    scheduled: int = 1_000_000
    million: int = 1_000_000
    unknown: int = 100_000
    steady: int = 2_000
    steady_seconds: float = 15.0
    pin_seconds: float = 90.0
    pin_edge: float = 15.0  # the first and the last so many seconds are compared
    pinned_minutes: float = 10.0
    idle_seconds: float = 60.0
    writers: int = 32
    write_seconds: float = 5.0


QUICK = Sizes(
    jobs=400,
    singles=50,
    streamed=50,
    timed=10,
    pause=0.005,
    limit=20.0,
    backlog=2_000,
    scheduled=2_000,
    million=4_000,
    unknown=1_000,
    steady=200,
    steady_seconds=0.6,
    pin_seconds=1.2,
    pin_edge=0.4,
    pinned_minutes=0.02,
    idle_seconds=1.0,
    writers=8,
    write_seconds=0.3,
)


@dataclass(slots=True)
class Contender:
    """A system in this run: its environment, and the tuned settings that were found best on this machine."""

    description: Description
    python: Path
    tuned: dict[str, Any]
    versions: dict[str, str]
    tried: list[Figures] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.description.name

    def settings(self, mode: Mode) -> dict[str, Any]:
        return self.tuned if mode == "tuned" else self.description.default


class Lab:
    """What the stages of a run have in common."""

    def __init__(self, postgres: Postgres, redis: Redis | None, sizes: Sizes) -> None:
        self.postgres = postgres
        self.redis = redis
        self.sizes = sizes
        self._directory = tempfile.TemporaryDirectory(prefix="asyncq-benchmarks-")
        self.counters = Path(self._directory.name) / "counters"
        self.counters.write_bytes(bytes(8 * SLOTS))
        self.handled = Handled()
        self.handled.open(self.counters, SLOTS - 1)

    def close(self) -> None:
        self._directory.cleanup()

    def stage(self, contender: Contender, mode: Mode = "tuned", *, workers: int = 1, **settings: Any) -> "Stage":
        return Stage(self, contender, {**contender.settings(mode), **settings}, workers)


class Stage:
    """Use it as a context manager; workers are started, but work only when told to."""

    def __init__(self, lab: Lab, contender: Contender, settings: dict[str, Any], workers: int) -> None:
        self._lab = lab
        self._contender = contender
        self._settings = settings
        self._count = workers
        self._open = ExitStack()
        self.database = f"bench_{contender.name}"
        self.handled = lab.handled
        self.workers: list[SystemProcess] = []

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self.handled.clear()
            self.dsn = self._fresh(opening)
            self.producer, *self.workers = (self._process(opening, slot) for slot in range(self._count + 1))
            self.producer.ask("prepare", timeout=120)
            self.producer.ask("open")
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    # ------------------------------------------------------------------------------------------------------- producing

    def fill(self, count: int) -> None:
        """Put jobs in, not measured, and write out what that left behind."""
        for start in range(0, count, 20_000):
            self.producer.ask("enqueue_many", count=min(20_000, count - start), timeout=300)
        self.calm()

    def preload(self, count: int, **row: Any) -> None:
        """Put rows in past the library, which only asyncq's module can."""
        self.producer.ask("call", operation="preload", count=count, **row, timeout=600)

    def calm(self) -> None:
        """Do what the server would do within minutes: statistics for the planner, and a checkpoint."""
        if self._contender.description.store == "postgresql":
            with psycopg.connect(self.dsn, autocommit=True) as conn:
                conn.execute("analyze")
            self._lab.postgres.checkpoint()

    def another(self) -> SystemProcess:
        """Start a second producer."""
        process = self._process(self._open, self._count + 1)
        process.ask("open")
        return process

    def produced_warm(self) -> None:
        """Let the producer and its connections have done everything once."""
        self.producer.ask("enqueue", count=10)
        self.producer.ask("enqueue_many", count=10)
        self.calm()

    def produced(self, do: str, count: int) -> Figures:
        """Put jobs in, measured."""
        there = self.producer.ask("remaining")["jobs"]
        before = self._costs([self.producer])
        seconds = self.producer.ask(do, count=count, timeout=600)["seconds"]
        client, server = self._costs([self.producer], before)
        arrived = self.producer.ask("remaining")["jobs"] - there
        if arrived != count:
            raise SystemFailedError(f"{count} jobs were put in, and {arrived} are there")
        return figures(count, seconds, client, server)

    # --------------------------------------------------------------------------------------------------------- working

    def start(self) -> None:
        for worker in self.workers:
            worker.send("work")
        for worker in self.workers:
            worker.answer()

    def stop(self) -> list[float]:
        """End the workers, and give the waiting times of the timed jobs in the order they ran."""
        for worker in self.workers:
            worker.send("stop")
        return [wait for worker in self.workers for wait in worker.answer(120)["waits"]]

    def drain(self, count: int, limit: float, *, whole: bool = True) -> Figures:
        """Work until so many jobs are handled and, if these are all there are, durably finished.

        A drain that is still under way after `limit` seconds is cut off: its rate is that of the jobs handled by then.
        """
        before = self._costs(self.workers)
        began = time.perf_counter()
        self.start()
        first = self._watch(1, began + limit)
        ran = self._watch(count, began + limit)
        finished = ran >= count
        if finished and whole:
            self.producer.ask("settle", limit=60.0, timeout=90)
        seconds = time.perf_counter() - began
        client, server = self._costs(self.workers, before)
        peak = max(worker.memory_mib(peak=True) for worker in self.workers)
        self.stop()
        if whole:
            self._verify(count, finished=finished)
        if not first:
            raise SystemFailedError(f"no job was handled within {limit:.0f} s: {self.workers[0].said()}")
        return figures(ran, seconds, client, server) | {"cut off": not finished, "peak MiB": peak}

    def rate_of(self, count: int, limit: float) -> float:
        """Jobs a second from the first handler's start, while there are more jobs than that."""
        self.start()
        began_with = self._watch(1, time.perf_counter() + 30)
        if not began_with:
            raise SystemFailedError(f"no job was handled within 30 s: {self.workers[0].said()}")
        began = time.perf_counter()
        ran = self._watch(count, began + limit)
        seconds = time.perf_counter() - began
        self.stop()
        if ran == began_with and ran < count:
            raise SystemFailedError(f"no job was handled after the first {began_with}: {self.workers[0].said()}")
        return (ran - began_with) / seconds

    def sampled(self, seconds: float, every: float) -> list[float]:
        """Jobs a second in each interval, while something else keeps jobs coming."""
        rates: list[float] = []
        began = last = time.perf_counter()
        ran = self.handled.total()
        for number in range(1, round(seconds / every) + 1):
            time.sleep(max(0.0, began + number * every - time.perf_counter()))
            self._check()
            now, now_ran = time.perf_counter(), self.handled.total()
            rates.append((now_ran - ran) / (now - last))
            last, ran = now, now_ran
        return rates

    def woken(self) -> int:
        """Wait until the workers have shown that they work, by timed jobs; gives how many they ran."""
        time.sleep(0.5)  # one that only listens must do so by now
        self.producer.ask("ping", count=3, pause=0.05, timeout=120)
        self._check()
        return self.handled.total()

    def until_handled(self, count: int, limit: float) -> None:
        ran = self._watch(count, time.perf_counter() + limit)
        if ran < count:
            raise SystemFailedError(
                f"{ran} of {count} jobs were handled within {limit:.0f} s: {self.workers[0].said()}"
            )

    def costs(self) -> tuple[float, float]:
        """Processor seconds of the workers and of the server, until now."""
        return self._costs(self.workers)

    def connection(self, **options: Any) -> psycopg.Connection[Any]:
        """A connection of nobody's, which ends with the stage."""
        return self._open.enter_context(psycopg.connect(self.dsn, **options))

    # --------------------------------------------------------------------------------------------------------- private

    def _fresh(self, opening: ExitStack) -> str:
        if self._contender.description.store == "redis":
            if self._lab.redis is None:
                raise SystemFailedError("there is no redis-server on this machine")
            self._lab.redis.flush()
            self._server = self._lab.redis.pid
            return self._lab.redis.dsn
        dsn = self._lab.postgres.fresh_database(self.database)
        opening.callback(self._lab.postgres.drop, self.database)
        self._server = self._lab.postgres.pid
        return dsn

    def _process(self, opening: ExitStack, slot: int) -> SystemProcess:
        process = SystemProcess(
            self._contender.python,
            self._contender.description.module,
            dsn=self.dsn,
            counters=self._lab.counters,
            slot=slot,
            settings=self._settings,
        )
        opening.callback(process.close)
        return process

    def _costs(self, processes: list[SystemProcess], before: tuple[float, float] = (0.0, 0.0)) -> tuple[float, float]:
        client = sum(process.processor_seconds() for process in processes)
        return client - before[0], processor_seconds(self._server) - before[1]

    def _watch(self, count: int, ends: float) -> int:
        check_at = time.perf_counter() + 0.5
        while (ran := self.handled.total()) < count and (now := time.perf_counter()) < ends:
            if now > check_at:
                self._check()
                check_at = now + 0.5
            time.sleep(0.001)
        return ran

    def _check(self) -> None:
        for process in [self.producer, *self.workers]:
            process.check()

    def _verify(self, count: int, *, finished: bool) -> None:
        ran = self.handled.total()
        remaining = self.producer.ask("remaining")["jobs"]
        if finished and (ran != count or remaining):
            raise SystemFailedError(f"of {count} jobs {ran} handlers ran, and {remaining} jobs are left")
        if ran + remaining < count:
            raise SystemFailedError(f"of {count} jobs {ran} handlers ran and {remaining} are left: some are lost")


def figures(jobs: int, seconds: float, client: float, server: float) -> Figures:
    return {
        "jobs": jobs,
        "seconds": seconds,
        "rate": jobs / seconds,
        "client µs": client / max(jobs, 1) * 1e6,
        "server µs": server / max(jobs, 1) * 1e6,
        "both µs": (client + server) / max(jobs, 1) * 1e6,
    }
