"""Rows that are put in and read by plain SQL, as an operator would, and short forms of the worker's statements."""

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row, tuple_row

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.job import Lease
from asyncq.outcome import Completed, Outcome, change
from asyncq.worker.lanes import Lanes, Look

__all__ = [
    "HOLDER",
    "claim",
    "count",
    "finish",
    "ids",
    "insert",
    "job",
    "look",
    "notifications",
    "rows",
    "running",
    "value",
]

Connection = psycopg.AsyncConnection[Any]

HOLDER = "worker-1"


async def rows(conn: Connection, query: LiteralString, *params: object) -> list[tuple[Any, ...]]:
    """Give all rows of a query."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query, params or None)
        return await cursor.fetchall()


async def value(conn: Connection, query: LiteralString, *params: object) -> Any:
    """Give the first value of the first row."""
    return (await rows(conn, query, *params))[0][0]


async def insert(conn: Connection, **columns: object) -> int:
    """Insert a job as given, due now unless it says otherwise, and give its id. SQL expressions are `sql.SQL`."""
    given = {"queue": "q", "task": "t", **columns}
    statement = sql.SQL("insert into asyncq.jobs ({}) values ({}) returning id").format(
        sql.SQL(", ").join(map(sql.Identifier, given)),
        sql.SQL(", ").join(
            each if isinstance(each, sql.Composable) else sql.Placeholder(name) for name, each in given.items()
        ),
    )
    plain = {name: each for name, each in given.items() if not isinstance(each, sql.Composable)}
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement, plain)
        row = await cursor.fetchone()
    assert row is not None
    return row[0]


async def running(conn: Connection, token: int, **columns: object) -> int:
    """Insert a job that is being run under this token, with 30 seconds of its lease left."""
    held: dict[str, object] = {
        "state": "running",
        "attempts": 1,
        "lease_token": token,
        "locked_by": HOLDER,
        "leased_until": sql.SQL("now() + interval '30 seconds'"),
        "attempted_at": sql.SQL("now() - interval '30 seconds'"),
        "run_at": sql.SQL("now() - interval '1 minute'"),
    }
    return await insert(conn, **{**held, **columns})


async def job(conn: Connection, job_id: int) -> dict[str, Any] | None:
    """Read a row, or None when it is gone."""
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute("select * from asyncq.jobs where id = %s", (job_id,))
        return await cursor.fetchone()


async def ids(conn: Connection, state: str = "available") -> list[int]:
    """Give the ids of the jobs in a state, ascending."""
    return [row[0] for row in await rows(conn, "select id from asyncq.jobs where state = %s order by id", state)]


async def count(conn: Connection) -> int:
    """Count the jobs, whatever their state."""
    return await value(conn, "select count(*) from asyncq.jobs")


async def claim(
    session: Session,
    slots: Mapping[str, int] | None = None,
    *,
    free: int = 10,
    tasks: Sequence[str] = ("t",),
    here: Sequence[int] = (),
    token: int = 1,
    schema: str = "asyncq",
) -> list[int]:
    """Claim as a worker does that has just started, and give the ids in the order in which they are served."""
    given = {"q": free} if slots is None else slots
    found = await look(session, given, free=free, tasks=tasks, here=here, token=token, schema=schema)
    order = list(given)
    return [row.id for row in sorted(found.rows, key=lambda row: order.index(row.queue))]


async def look(
    session: Session,
    slots: Mapping[str, int],
    *,
    free: int = 10,
    tasks: Sequence[str] = ("t",),
    here: Sequence[int] = (),
    token: int = 1,
    schema: str = "asyncq",
    lanes: Lanes | None = None,
    finished: Sequence[Lease] = (),
) -> jobs.Claim:
    """Find the lanes of some queues, and claim from them; with `lanes`, in those that are known already."""
    if lanes is None:
        lanes = Lanes()
        await look(session, slots, tasks=tasks, token=token, schema=schema, lanes=lanes)
    asked = [lanes.asked(queue, count, Look.BACK) for queue, count in slots.items()]
    found = await jobs.claim(
        session, schema, asked=asked, free=free, tasks=tasks, here=here, worker=HOLDER, token=token, finished=finished
    )
    lanes.note(asked, found, free)
    return found


async def finish(session: Session, *outcomes: tuple[int, int, Outcome]) -> jobs.Unwritten:
    """Write outcomes of (id, token), as a worker does: successes, and then the others."""
    succeeded = [Lease(job_id, token, 60) for job_id, token, outcome in outcomes if outcome == Completed()]
    others = [
        (Lease(job_id, token, 60), change(outcome)) for job_id, token, outcome in outcomes if outcome != Completed()
    ]
    unwritten: jobs.Unwritten = {}
    if succeeded:
        unwritten |= await jobs.complete(session, "asyncq", succeeded)
    if others:
        unwritten |= await jobs.finish(session, "asyncq", others)
    return unwritten


async def notifications(conn: Connection) -> list[tuple[str, str]]:
    """Give what has arrived at a listening connection: channel and payload. All that was committed before is there."""
    # A round trip: the server delivers what was committed before it answers.
    await conn.execute("select 1")
    return [(each.channel, each.payload) async for each in conn.notifies(timeout=0)]
