"""A handler that blocks the event loop: no lease is lost, the log says what blocks, and it does not go on for ever."""

import os
import re
import sys

import anyio
import psycopg

from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.processes import ROOT
from tests.truth import TruthLog
from tests.worker import app

LEASE = app.work.lease.total_seconds()


async def count(truth: TruthLog, event: str, *jobs: int) -> int:
    return sum([len(await truth.rows(job, event)) for job in jobs])


async def connections(conn: psycopg.AsyncConnection) -> list[str]:
    cursor = await conn.execute(
        "select application_name from pg_stat_activity"
        " where datname = current_database() and application_name like 'asyncq watchdog%'"
    )
    return [name for (name,) in await cursor.fetchall()]


async def test_a_blocked_event_loop_loses_neither_the_job_that_blocks_nor_its_neighbours(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    first = start_worker("tests.worker.app")
    await first.wait_ready()
    neighbours = [(await app.lasting.defer(conn, 1.0)).id for _ in range(5)]
    await eventually(lambda: count(truth, "start", *neighbours), describe="neighbours run")
    blocking = (await app.blocking.defer(conn, 4 * LEASE)).id
    await eventually(lambda: count(truth, "start", blocking), describe="the loop is blocked")
    second = start_worker("tests.worker.app")
    await second.wait_ready()

    await first.wait_for("the event loop turns again")
    assert any(f":{first.pid}:" in name for name in await connections(conn))
    jobs = [blocking, *neighbours]

    async def ended() -> bool:
        return await count(truth, "end", *jobs) == len(jobs)

    await eventually(ended, describe="all end")
    await anyio.sleep(LEASE)
    assert await count(truth, "start", *jobs) == await count(truth, "end", *jobs) == len(jobs)
    cursor = await conn.execute("select count(*) from asyncq.jobs")
    assert await cursor.fetchone() == (0,)
    assert "blocked for" in first.stderr
    assert f"job {blocking} (tests.worker.app.blocking, attempt 1 of" in first.stderr
    where = (
        r"; it is at \S+app\.py:\d+ in stand_still: time\.sleep\(seconds\) < \S+ in blocking: stand_still\(seconds\)\n"
    )
    assert re.search(where, first.stderr)
    for worker in (first, second):
        assert "rescued" not in worker.stderr
        assert "lost" not in worker.stderr


async def test_an_event_loop_that_never_turns_again_ends_its_process_and_frees_its_jobs(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    first = start_worker("tests.worker.app", "--stall-leases", "2")
    await first.wait_ready()
    neighbour = (await app.slow_at_first.defer(conn)).id
    await eventually(lambda: count(truth, "start", neighbour), describe="the neighbour runs")
    await app.blocking.options(max_attempts=1).defer(conn, 3600.0)
    assert await first.wait() == 7
    assert "this process ends itself" in first.stderr
    second = start_worker("tests.worker.app")
    await second.wait_ready()
    await eventually(lambda: count(truth, "end", neighbour), 10, describe="the neighbour runs again elsewhere")
    assert [entry.attempt for entry in await truth.rows(neighbour, "start")] == [1, 2]


async def test_a_log_that_nobody_reads_does_not_keep_the_process_from_ending(
    dsn: str, conn: psycopg.AsyncConnection, truth: TruthLog
) -> None:
    arguments = [sys.executable, "-m", "asyncq", "worker", "tests.worker.app", "--stall-leases", "2"]
    unread, stderr = os.pipe()
    environment = {**os.environ, "ASYNCQ_DSN": dsn}
    async with await anyio.open_process(arguments, cwd=ROOT, env=environment, stderr=stderr) as process:
        os.close(stderr)
        try:
            job = (await app.loud.defer(conn)).id
            await eventually(lambda: count(truth, "start", job), 15, describe="it writes more than the pipe holds")
            with anyio.fail_after(15):
                assert await process.wait() == 7
        finally:
            if process.returncode is None:
                process.kill()
            os.close(unread)


async def test_a_worker_that_was_frozen_is_not_taken_for_a_blocked_one(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--stall-leases", "1")
    await worker.wait_ready()
    job = (await app.lasting.defer(conn, 3600.0)).id
    await eventually(lambda: count(truth, "start", job), describe="it holds a job")
    worker.stop()
    await anyio.sleep(2 * LEASE)
    worker.cont()
    other = (await app.quick.defer(conn, 1)).id
    await eventually(lambda: count(truth, "start", other), describe="it goes on")
    await anyio.sleep(LEASE)
    assert worker.returncode is None
    assert "ends itself" not in worker.stderr
