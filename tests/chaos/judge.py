"""What was promised against what happened, by the handlers' own log and the server's record of each change."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime

import psycopg

from tests.chaos import app
from tests.truth import Entry, TruthLog, overlaps

FINAL = ("deleted", "discarded", "cancelled")


@dataclass(frozen=True, slots=True)
class Move:
    """A change of a job's state."""

    job_id: int
    was: str
    became: str
    attempts: int
    leased_until: datetime | None
    at: datetime


@dataclass(slots=True)
class Verdict:
    """What was found."""

    promised: Counter[str]
    ran: int
    rescued: int
    overlaps: int
    wrong: list[str]


async def judge(dsn: str, withdrawn: set[int], deadlocks: int) -> Verdict:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        promised: dict[int, str] = dict(await (await conn.execute("select job_id, kind from promised")).fetchall())
        cursor = await conn.execute("select job_id, was, became, attempts, leased_until, at from moves order by seq")
        moves: dict[int, list[Move]] = defaultdict(list)
        for row in await cursor.fetchall():
            moves[row[0]].append(Move(*row))
        left = await (await conn.execute("select id, state from asyncq.jobs")).fetchall()
    log = TruthLog(dsn)
    # A line may have been written twice: the first counts.
    entries = list({(entry.note, entry.event): entry for entry in reversed(await log.rows())}.values())[::-1]
    await log.close()
    overlapping = overlaps(entries, lambda entry: entry.note)

    wrong = [f"job {job} is left {state}" for job, state in left if state in ("available", "running")]
    if deadlocks:
        wrong.append(f"{deadlocks} dead-locks")
    for job, kind in promised.items():
        ends = [move.became for move in moves[job] if move.became in FINAL]
        if ends != [app.ENDS.get(kind, "deleted")]:
            wrong.append(f"job {job} ({kind}) was promised and came to {ends or 'no end'}")
        if kind == "doom" and ends and moves[job][-1].attempts != app.DOOMED_ATTEMPTS:
            wrong.append(f"job {job} is discarded after {moves[job][-1].attempts} attempts")
    ran = {entry.job_id for entry in entries}
    # A crash of the server may give an id a second time that nobody committed the first time.
    wrong += [f"job {job} was rolled back and ran" for job in sorted((ran & withdrawn) - promised.keys())]
    wrong += [f"job {job} ran and was never promised" for job in sorted(ran - withdrawn - promised.keys())]
    for entry in entries:
        if entry.event == "start" and not any(
            move.became == "running" and move.attempts == entry.attempt and move.at <= entry.at
            for move in moves[entry.job_id]
        ):
            wrong.append(f"job {entry.job_id} started attempt {entry.attempt}, which nobody claimed")
    wrong += [
        f"job {second.job_id}: attempt {second.attempt} began while attempt {first.attempt} ran, and held its lease"
        for first, second in overlapping
        if not lease_ran_out(moves[first.job_id], *sorted((first, second), key=lambda entry: entry.attempt))
    ]
    return Verdict(
        promised=Counter(promised.values()),
        ran=sum(entry.event == "start" for entry in entries),
        rescued=sum(ran_out(move) for each in moves.values() for move in each),
        overlaps=len(overlapping),
        wrong=wrong,
    )


def ran_out(move: Move) -> bool:
    """Whether the job was taken back after its lease had ended."""
    taken_back = move.was == "running" and move.became in ("available", "discarded")
    return taken_back and move.leased_until is not None and move.leased_until < move.at


def lease_ran_out(moves: list[Move], lower: Entry, higher: Entry) -> bool:
    """Whether the lower of two attempts had lost its lease before the higher one began.

    The lower may have begun last: by a worker that was frozen between its claim and the start.
    """
    return any(ran_out(move) and move.attempts == lower.attempt and move.at < higher.at for move in moves)
