"""What is wrong with a queue, decided from what its database and its workers show. `asyncq.db.doctor` asks for that.

Each question has a function, which gives findings: one that all is well, or one for each thing that is not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from asyncq.reason import WorkerStatus

__all__ = [
    "Finding",
    "Head",
    "Holder",
    "Index",
    "Level",
    "Runs",
    "Server",
    "Table",
    "claims",
    "clock",
    "horizon",
    "indexes",
    "notifications",
    "rights",
    "runs",
    "server",
    "table",
    "waiting",
    "workers",
]

HORIZON_SECONDS = (300.0, 3600.0)
"""A transaction that is open for so long is warned of, and is a fault."""

SLOT_TRANSACTIONS = (100_000, 5_000_000)
"""The same for what has no time: how many transactions have begun since."""

CLOCK_SECONDS = 2.0
"""How far the clocks of this machine and of the database may be apart."""

DUE_SECONDS = 300.0
"""How long a due job may wait before it is warned of."""

QUEUE_USAGE = (0.1, 0.5)
"""How full the server's queue of notifications may be."""

ROUND_TRIP_SECONDS = 0.25
CONNECTIONS = 0.9
DEAD_ROWS = 100_000
INDEX_BYTES = 64 * 2**20
BYTES_PER_ENTRY = 400
CLAIM_PAGES = 1_000
RESCUED_SECONDS = 120.0

INDEXES = ("jobs_claim", "jobs_finished", "jobs_pkey", "jobs_running")


class Level(StrEnum):
    """Say how bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """Read what was found.

    Attributes:
        check: the question.
        level: how bad it is.
        text: what was found.
        advice: what to do, if something is to be done.
    """

    check: str
    level: Level
    text: str
    advice: str | None = None


class Server(NamedTuple):
    """A row of `doctor/server.sql`."""

    version: int
    read_only: bool
    fsync: bool
    synchronous_commit: bool
    autovacuum: bool
    track_counts: bool
    connections: int
    most_connections: int
    notify_usage: float
    now: float


class Table(NamedTuple):
    """A row of `doctor/tables.sql`."""

    vacuumed: bool
    live: int
    dead: int
    vacuum_seconds: float | None
    size: int


class Index(NamedTuple):
    """A row of `doctor/indexes.sql`."""

    name: str
    valid: bool
    size: int


class Holder(NamedTuple):
    """A row of `doctor/horizon.sql`."""

    kind: str
    name: str
    seconds: float | None
    transactions: int | None
    what: str


class Head(NamedTuple):
    """A row of `doctor/waiting.sql`."""

    queue: str
    task: str
    jobs: int
    seconds: float


class Runs(NamedTuple):
    """A row of `doctor/leases.sql`."""

    worker: str
    kept: int
    over: int
    over_seconds: float | None


def _all_well(check: str, text: str, found: list[Finding]) -> list[Finding]:
    return found or [Finding(check, Level.OK, text)]


def server(found: Server) -> list[Finding]:
    """Judge the server's settings."""
    findings: list[Finding] = []

    def add(level: Level, text: str, advice: str) -> None:
        findings.append(Finding("server", level, text, advice))

    if found.version < 120_000:
        add(Level.FAIL, f"PostgreSQL {found.version // 10_000} is too old.", "asyncq needs 12 or newer.")
    if found.read_only:
        add(Level.FAIL, "It is read-only.", "Is this a standby? Workers wait until it can be written to.")
    if not found.autovacuum or not found.track_counts:
        add(
            Level.FAIL,
            "autovacuum is switched off: deleted jobs are never removed.",
            "Set autovacuum and track_counts.",
        )
    if not found.fsync:
        add(Level.WARN, "fsync is off: a crash of the machine may lose committed jobs.", "Switch it on.")
    if not found.synchronous_commit:
        text = "synchronous_commit is off for this role or database: a crash may lose the last committed jobs."
        add(Level.WARN, text, "Switch it on where jobs are put in.")
    if found.connections > CONNECTIONS * found.most_connections:
        text = f"{found.connections} of {found.most_connections} connections are taken."
        add(Level.WARN, text, "Raise max_connections, or use a pooler: workers that start need four each.")
    major, minor = divmod(found.version, 10_000)
    return _all_well("server", f"PostgreSQL {major}.{minor}, {found.connections} connections.", findings)


def table(found: Table) -> list[Finding]:
    """Judge how vacuum keeps up."""
    since = "never, as far as is known" if found.vacuum_seconds is None else f"{_length(found.vacuum_seconds)} ago"
    text = f"{found.live:,} live and {found.dead:,} dead rows, {found.size / 2**20:,.0f} MiB, vacuumed {since}."
    if not found.vacuumed:
        advice = "Run 'alter table asyncq.jobs reset (autovacuum_enabled)'."
        return [Finding("vacuum", Level.FAIL, f"autovacuum is switched off for the jobs table. {text}", advice)]
    if found.dead > max(DEAD_ROWS, 5 * found.live):
        advice = (
            "Is there an old transaction? Otherwise autovacuum does not keep up: more of its workers, or less delay."
        )
        return [Finding("vacuum", Level.WARN, text, advice)]
    return [Finding("vacuum", Level.OK, text)]


def indexes(found: Sequence[Index], rows: int) -> list[Finding]:
    """Judge the indexes; `rows` are those of the table, dead and alive."""
    findings: list[Finding] = []
    there = {index.name: index for index in found}
    for name in INDEXES:
        if name not in there:
            advice = "Create it again: 'asyncq migrate --sql' without a database prints how."
            findings.append(Finding("indexes", Level.FAIL, f"The index {name} is missing.", advice))
        elif not there[name].valid:
            advice = f"Run 'reindex index concurrently asyncq.{name}'."
            findings.append(Finding("indexes", Level.FAIL, f"The index {name} is not valid.", advice))
    for index in found:
        if index.size > max(INDEX_BYTES, BYTES_PER_ENTRY * rows):
            text = f"The index {index.name} has {index.size / 2**20:,.0f} MiB for {rows:,} rows."
            advice = f"Run 'reindex index concurrently asyncq.{index.name}'."
            findings.append(Finding("indexes", Level.WARN, text, advice))
    size = sum(index.size for index in found)
    return _all_well("indexes", f"All are there, {size / 2**20:,.0f} MiB.", findings)


def horizon(found: Sequence[Holder]) -> list[Finding]:
    """Judge what keeps deleted rows from being removed."""
    findings: list[Finding] = []
    for holder in found:
        if holder.seconds is None:
            level = _above(holder.transactions or 0, SLOT_TRANSACTIONS)
            age = f"has been for {holder.transactions or 0:,} transactions"
        else:
            level = _above(holder.seconds, HORIZON_SECONDS)
            age = f"has been for {_length(holder.seconds)}"
        if level is not Level.OK:
            text = f"The {holder.kind} {holder.name} keeps deleted rows, and {age} ({holder.what})."
            findings.append(Finding("horizon", level, text, _END[holder.kind].format(name=holder.name)))
    oldest = max((holder.seconds or 0.0 for holder in found), default=0.0)
    return _all_well("horizon", f"The oldest open transaction began {_length(oldest)} ago.", findings)


_END = {
    "session": "End it, 'select pg_terminate_backend({name})', and set idle_in_transaction_session_timeout.",
    "prepared transaction": "Commit it or roll it back: 'rollback prepared'.",
    "replication slot": "If nobody needs it: 'select pg_drop_replication_slot'.",
}


def notifications(round_trip: float | None, usage: float, *, pooled: bool) -> list[Finding]:
    """Judge the way of notifications; `round_trip` is None when none came."""
    findings: list[Finding] = []
    if round_trip is None:
        where = "behind a pooler in transaction mode" if pooled else "on this connection"
        text = f"None arrive {where}: workers look for jobs once a second."
        advice = "Give workers --listen-dsn with a direct connection."
        findings.append(Finding("notifications", Level.WARN, text, advice))
    elif round_trip > ROUND_TRIP_SECONDS:
        text = f"One took {round_trip * 1000:,.0f} ms to arrive."
        findings.append(Finding("notifications", Level.WARN, text, "Is the server or the network under load?"))
    if (level := _above(usage, QUEUE_USAGE)) is not Level.OK:
        text = f"The server's queue of notifications is {usage:.0%} full; when it is, commits that notify fail."
        advice = "Some session listens inside of an open transaction: end it."
        findings.append(Finding("notifications", level, text, advice))
    arrived = f"One took {(round_trip or 0) * 1000:,.1f} ms to arrive, the queue is {usage:.0%} full."
    return _all_well("notifications", arrived, findings)


def clock(difference: float) -> list[Finding]:
    """Judge how far this machine's clock is ahead of the database's."""
    text = f"This machine and the database differ by {abs(difference):.2f} s."
    if abs(difference) <= CLOCK_SECONDS:
        return [Finding("clock", Level.OK, text)]
    advice = (
        "Jobs are due by the database's clock: a run_at that a program computes is off by that much. Set the clocks."
    )
    return [Finding("clock", Level.WARN, text, advice)]


def rights(lacking: str | None, purpose: str) -> list[Finding]:
    """Judge what the role may do; `lacking` is the error that says which grants are missing."""
    if lacking is None:
        return [Finding("rights", Level.OK, f"This role has what a {purpose} needs.")]
    return [Finding("rights", Level.FAIL, f"{lacking[:1].upper()}{lacking[1:]}.")]


def workers(found: Sequence[WorkerStatus], runs: Sequence[Runs]) -> list[Finding]:
    """Judge who works; one that is silent but keeps its leases is stuck."""
    findings: list[Finding] = []
    keeping = {run.worker for run in runs if run.kept}
    for worker in found:
        if not worker.alive and worker.id in keeping:
            text = f"Worker {worker.id} keeps its jobs but has not said lately that it lives."
            advice = "A handler may block its event loop, which its log tells with the line; or it has just died."
            findings.append(Finding("workers", Level.WARN, text, advice))
    alive = [worker for worker in found if worker.alive]
    if not alive:
        findings.append(Finding("workers", Level.FAIL, "No worker is alive.", "Start one: 'asyncq worker'."))
    elif all(worker.stopping_at is not None for worker in alive):
        findings.append(Finding("workers", Level.FAIL, "All workers are stopping.", "Start another one."))
    releases = sorted({worker.release for worker in alive})
    if len(releases) > 1:
        text = f"Workers of several releases are alive: {', '.join(releases)}."
        findings.append(Finding("workers", Level.WARN, text, "Fine during a deploy, and not for long."))
    slots = sum(worker.concurrency for worker in alive)
    return _all_well("workers", f"{len(alive)} alive, with {slots:,} slots.", findings)


def runs(found: Sequence[Runs]) -> list[Finding]:
    """Judge whether the jobs of dead workers are taken back."""
    late = [run for run in found if run.over and (run.over_seconds or 0) > RESCUED_SECONDS]
    if late:
        jobs, seconds = sum(run.over for run in late), max(run.over_seconds or 0 for run in late)
        text = f"{jobs:,} jobs whose leases ran out, the first {_length(seconds)} ago, were not taken back."
        return [Finding("leases", Level.FAIL, text, "Any worker that is alive takes them back: start one.")]
    return [Finding("leases", Level.OK, f"{sum(run.kept for run in found):,} jobs run, and their leases are kept.")]


def waiting(heads: Sequence[Head], found: Sequence[WorkerStatus]) -> list[Finding]:
    """Judge whether what is due is served: each queue, and each task in it."""
    alive = [worker for worker in found if worker.alive and worker.stopping_at is None]
    findings: list[Finding] = []
    for queue in dict.fromkeys(head.queue for head in heads):
        of_queue = [head for head in heads if head.queue == queue]
        serving = [worker for worker in alive if queue in worker.queues]
        since = _length(max(head.seconds for head in of_queue))
        if not serving:
            text = f"Queue {queue} has jobs that have been due for {since}, and no worker serves it."
            findings.append(Finding("queues", Level.FAIL, text, "Start a worker of it; or is its name misspelt?"))
            continue
        known = {task for worker in serving for task in worker.tasks}
        if unknown := [head for head in of_queue if head.task not in known]:
            names = ", ".join(head.task for head in unknown[:5]) + (" and others" if len(unknown) > 5 else "")
            since = _length(max(head.seconds for head in unknown))
            text = f"Queue {queue} has jobs that have been due for {since} whose tasks no worker of it has: {names}."
            advice = "Is the code that has them not deployed? A task's aliases= keep old names."
            findings.append(Finding("queues", Level.FAIL, text, advice))
        late = [head for head in of_queue if head.task in known and head.seconds > DUE_SECONDS]
        if late:
            text = f"The first job of queue {queue} has been due for {_length(max(head.seconds for head in late))}."
            findings.append(
                Finding("queues", Level.WARN, text, "More workers or slots; 'asyncq explain' tells of one.")
            )
    oldest = max((head.seconds for head in heads), default=None)
    well = "Nothing is due." if oldest is None else f"The first due job has waited for {_length(oldest)}."
    return _all_well("queues", well, findings)


def claims(pages: Iterable[tuple[str, int, float]]) -> list[Finding]:
    """Judge what finding the first job costs, by queue: pages read and milliseconds."""
    findings: list[Finding] = []
    most = 0
    for queue, read, milliseconds in pages:
        most = max(most, read)
        if read > CLAIM_PAGES:
            text = f"The first job of queue {queue} is found after {read:,} pages, in {milliseconds:,.0f} ms."
            advice = "Dead rows lie before it: what keeps them (horizon), or does vacuum not come (vacuum)?"
            findings.append(Finding("claims", Level.WARN, text, advice))
    return _all_well("claims", f"The first job of a queue is found after at most {most:,} pages.", findings)


def _above(value: float, limits: tuple[float, float]) -> Level:
    warn, fail = limits
    return Level.FAIL if value >= fail else Level.WARN if value >= warn else Level.OK


def _length(seconds: float) -> str:
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 72)):
        if seconds < size * most:
            return f"{max(seconds, 0.0) // size:.0f} {unit}"
    return f"{seconds // 86400:,.0f} days"
