"""`asyncq history`, and what `asyncq show` tells of the runs of a job."""

import json
from collections.abc import Iterator
from datetime import timedelta

import anyio
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from asyncq import Queue, RetryPolicy, Worker, WorkerOptions
from tests.cli.run import run
from tests.sql.rows import rows


@pytest.fixture
def db(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def ids(dsn: str) -> list[int]:
    """A job that succeeded, one that failed twice, and one that waits; all but the last have ended."""
    return anyio.run(_ids, dsn)


async def _ids(dsn: str) -> list[int]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        return await _worked_off(dsn, conn)


async def _worked_off(dsn: str, conn: psycopg.AsyncConnection) -> list[int]:
    queue = Queue(
        "emails", history=timedelta(days=1), max_attempts=2, retry=RetryPolicy(base=timedelta(microseconds=1))
    )

    @queue.task(name="send")
    async def send(number: int) -> None:
        if number == 1:
            raise ValueError("\x1b[2Jno such address")

    found = await send.defer_many(conn, [send.args(0), send.args(1)])
    await Worker([queue], dsn, WorkerOptions(burst=True)).run()
    while await rows(conn, "select 1 from asyncq.jobs where state = 'available'"):
        await Worker([queue], dsn, WorkerOptions(burst=True)).run()
    return [*found, (await send.options(delay=timedelta(hours=1)).defer(conn, 2)).id]


def test_a_person_sees_what_has_ended(dsn: str, ids: list[int]) -> None:
    result = run("history", "emails", dsn=dsn)
    assert result.code == 0
    heading, _, failed, succeeded = result.out.splitlines()
    assert heading.split() == ["id", "event", "attempt", "at", "ran", "for", "task", "error"]
    assert failed.split()[:3] == [str(ids[1]), "discarded", "2"]
    assert failed.endswith("send  ValueError: \\x1b[2Jno such address")
    assert succeeded.split()[:3] == [str(ids[0]), "completed", "1"]
    assert run("history", "emails", "--event", "cancelled", dsn=dsn).out.startswith("no history of queue emails")


def test_a_program_reads_the_same(dsn: str, ids: list[int]) -> None:
    (line,) = run("history", "emails", "--event", "discarded", "--json", dsn=dsn).out.splitlines()
    found = json.loads(line)
    assert (found["id"], found["event"], found["attempt"], found["task"]) == (ids[1], "discarded", 2, "send")
    assert found["error"].endswith("no such address")
    assert found["worker"]
    (latest,) = run("history", "emails", "--limit", "1", "--json", dsn=dsn).out.splitlines()
    assert json.loads(latest)["id"] == ids[1]


def test_show_tells_of_each_run_also_of_jobs_that_are_gone(dsn: str, ids: list[int]) -> None:
    result = run("show", *map(str, ids), "999", dsn=dsn)
    gone, failed, waits = result.out.split("\n\n")
    assert gone.startswith(f"job {ids[0]} (send of queue emails) is not there any more\nhistory\n")
    assert "attempt 1 completed after 0.0" in gone
    assert "history" in failed
    assert failed.count("ValueError: \\x1b[2Jno such address") == 3
    assert "attempt 1 failed after" in failed
    assert "attempt 2 discarded after" in failed
    assert "history" not in waits
    assert result.err == "asyncq: there are no such jobs: 999\n"
    read = [json.loads(line) for line in run("show", *map(str, ids), "--json", dsn=dsn).out.splitlines()]
    assert [job["state"] for job in read] == [None, "discarded", "available"]
    assert [[event["event"] for event in job.get("events", [])] for job in read] == [
        ["completed"], ["failed", "discarded"], [],
    ]  # fmt: skip


def test_an_observer_sees_no_errors(dsn: str, db: psycopg.Connection, ids: list[int]) -> None:
    db.execute("create role looks login password 'looks'; grant usage on schema asyncq to looks")
    try:
        theirs = make_conninfo(dsn, user="looks", password="looks")
        refused = run("history", "emails", dsn=theirs)
        assert refused.code == 2
        (grant,) = [line.split("run '")[1][:-1] for line in refused.err.splitlines()]
        db.execute(grant.encode())
        result = run("history", "emails", dsn=theirs)
        assert result.code == 0
        assert "discarded" in result.out
        assert "ValueError" not in result.out
        assert result.err == "asyncq: errors are not shown, as the role may not read them\n"
    finally:
        db.execute("drop owned by looks; drop role looks")
