"""`asyncq explain` and `asyncq workers`, as a person reads them and as a program does."""

import json

import anyio.to_thread
import psycopg
import pytest

from tests.cli.run import Result, run
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.sql.rows import insert, value

Connection = psycopg.AsyncConnection


async def told_by(*arguments: str, dsn: str) -> Result:
    return await anyio.to_thread.run_sync(lambda: run(*arguments, dsn=dsn))


async def test_it_tells_why_and_with_which_workers(dsn: str, conn: Connection, start_worker: StartWorker) -> None:
    evil = await insert(conn, queue="work", task="no\u202esuch task")
    told = await told_by("explain", str(evil), dsn=dsn)
    assert (told.code, told.err) == (0, "")
    start = f"job {evil} (no\\x202esuch task of queue work): It has been due for "
    assert told.out.startswith(start)
    assert told.out.endswith("s, and no worker that is alive serves its queue, work. Start one.\n")
    assert (await told_by("workers", dsn=dsn)).out == "no workers\n"
    assert (await told_by("workers", "--json", dsn=dsn)).out == ""

    worker = start_worker("tests.worker.app", "--concurrency", "7")
    await worker.wait_ready()

    async def present() -> bool:
        return await value(conn, "select count(*) from asyncq.workers") == 1

    await eventually(present)
    told = await told_by("explain", str(evil), "99", "--json", dsn=dsn)
    assert told.code == 0
    first, second = map(json.loads, told.out.splitlines())
    assert (first["job_id"], first["reason"], first["facts"]["queue"]) == (evil, "unknown task", "work")
    assert first["workers"][0]["concurrency"] == 7
    assert (second["job_id"], second["reason"], second["facts"]) == (99, "gone", None)

    name = await value(conn, "select id from asyncq.workers")
    listed = (await told_by("workers", dsn=dsn)).out
    assert listed.startswith(f"{name}  alive, seen 2")
    assert "  0 of 7 slots  " in listed
    [found] = map(json.loads, (await told_by("workers", "--json", dsn=dsn)).out.splitlines())
    assert (found["id"], found["alive"], found["stopping_at"]) == (name, True, None)
    await conn.execute("update asyncq.workers set seen_at = now() - interval '1 hour', stopping_at = now()")
    assert f"{name}  silent, stopping, seen 2" in (await told_by("workers", dsn=dsn)).out


@pytest.mark.parametrize("given", ["0", "-1", "x", "1.5", str(2**63)])
async def test_what_is_no_id_is_refused(dsn: str, given: str) -> None:
    told = await told_by("explain", "--", given, dsn=dsn)
    assert told.code == 2
    assert told.out == ""
    assert "explain" in told.err
