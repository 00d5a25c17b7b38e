"""What the database is asked to tell why a job does not run."""

import psycopg
import pytest
from psycopg import sql

from asyncq import InvalidArgsError, Queue, Reason
from asyncq.db import workers
from asyncq.db.connection import Session
from asyncq.db.explain import explain
from asyncq.reason import MOST_AHEAD
from tests.servers import majors
from tests.sql.rows import insert, running

Connection = psycopg.AsyncConnection


async def come(session: Session, name: str, **said: object) -> None:
    known = {"queues": ["q"], "tasks": ["t"], "concurrency": 10, "release": "1", **said}
    await workers.register(session, "asyncq", worker=name, **known)  # type: ignore[arg-type]


async def why(conn: Connection, job_id: int) -> Reason:
    return (await explain(conn, "asyncq", job_id)).reason


@majors(12, 18)
async def test_jobs_that_are_taken_before_it_are_counted(conn: Connection, session: Session) -> None:
    job_id = await insert(conn, priority=5, run_at=sql.SQL("now() - interval '1 minute'"))
    for priority, ago, queue in (
        (5, "2 minutes", "q"),
        (5, "1 minute", "q"),  # of the same moment or later, and a later id
        (5, "-1 hour", "q"),
        (6, "1 second", "q"),
        (6, "-1 hour", "q"),
        (100, "1 year", "q"),
        (4, "1 year", "q"),
        (100, "1 year", "other"),
    ):
        run_at = sql.SQL("now() - {}::interval").format(ago)
        await insert(conn, priority=priority, run_at=run_at, queue=queue)
    await running(conn, 1, priority=100)
    await come(session, "w")
    found = await explain(conn, "asyncq", job_id)
    assert found.facts is not None
    assert (found.reason, found.facts.ahead) == (Reason.BEHIND, 3)
    assert (found.facts.attempted_at, found.facts.leased_until, found.facts.finished_at) == (None, None, None)


async def test_a_long_line_is_not_counted_to_its_end(conn: Connection, session: Session) -> None:
    await come(session, "w")
    await conn.execute(
        "insert into asyncq.jobs (queue, task, run_at) select 'q', 't', now() - interval '1 day'"
        " from generate_series(1, 10500)"
    )
    found = await explain(conn, "asyncq", await insert(conn))
    assert found.facts is not None
    assert found.facts.ahead == MOST_AHEAD
    assert "10,000 or more" in str(found)


async def test_workers_are_alive_while_they_say_so_and_count_what_they_hold(conn: Connection, session: Session) -> None:
    job_id = await insert(conn)
    assert await why(conn, job_id) is Reason.NO_WORKER
    await come(session, "worker-1", concurrency=2)
    assert await why(conn, job_id) is Reason.NEXT
    await running(conn, 1)
    held = await running(conn, 2)
    [worker] = (await explain(conn, "asyncq", held)).workers
    assert (worker.id, worker.running, worker.alive) == ("worker-1", 2, True)
    assert await why(conn, job_id) is Reason.BUSY
    await workers.seen(session, "asyncq", worker="worker-1", stopping=True, done=[])
    assert await why(conn, job_id) is Reason.STOPPING
    await conn.execute("update asyncq.workers set seen_at = now() - interval '99 seconds'")
    assert await why(conn, job_id) is Reason.STOPPING
    await conn.execute("update asyncq.workers set seen_at = now() - interval '101 seconds'")
    assert await why(conn, job_id) is Reason.NO_WORKER
    await workers.leave(session, "asyncq", worker="worker-1", done=[])
    assert await workers.listed(conn, "asyncq") == []


async def test_a_failure_is_told_by_its_last_line_to_those_who_may_read_it(conn: Connection) -> None:
    error = "Traceback\n  somewhere\nValueError: no\n"
    job_id = await insert(conn, state="discarded", finished_at=sql.SQL("now()"), attempts=10, last_error=error)
    assert "after 10 attempts: ValueError: no." in str(await explain(conn, "asyncq", job_id))
    await conn.execute("create role looks")
    await conn.execute(
        "grant usage on schema asyncq to looks; grant select on asyncq.workers to looks;"
        " grant select (id, queue, task, state, priority, attempts, max_attempts, run_at, created_at, attempted_at,"
        " leased_until, finished_at, locked_by) on asyncq.jobs to looks"
    )
    try:
        await conn.execute("set role looks")
        assert "after 10 attempts." in str(await explain(conn, "asyncq", job_id))
    finally:
        await conn.execute("reset role; drop owned by looks; drop role looks")


@majors(12, 18)
async def test_times_that_python_cannot_hold_break_nothing(conn: Connection) -> None:
    for state, far in (
        ("available", sql.SQL("'infinity'::timestamptz")),
        ("available", sql.SQL("'-infinity'::timestamptz")),
        ("running", sql.SQL("'200000-01-01'::timestamptz")),
    ):
        times = {"run_at": far, "created_at": far}
        if state == "running":
            times |= {"attempted_at": far, "leased_until": far}
            job_id = await running(conn, 7, **times)
        else:
            job_id = await insert(conn, **times)
        assert str(await explain(conn, "asyncq", job_id))


@pytest.mark.parametrize("job_id", [0, -1, 2**63, "17", None, 1.0, True])
async def test_what_is_no_id_is_refused(conn: Connection, job_id: object) -> None:
    with pytest.raises(InvalidArgsError, match="explain"):
        await Queue().explain(conn, job_id)  # type: ignore[arg-type]


async def test_a_job_that_is_not_there_is_gone(conn: Connection) -> None:
    assert (await Queue().explain(conn, 2**63 - 1)).reason is Reason.GONE
