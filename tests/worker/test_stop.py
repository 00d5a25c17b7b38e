"""SIGTERM, a second signal, and handlers that will not end."""

import signal
import time
from contextlib import suppress
from pathlib import Path

import anyio
import psycopg
import pytest

from asyncq import Task
from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.servers import with_options
from tests.truth import TruthLog
from tests.worker import app


async def state(conn: psycopg.AsyncConnection, job_id: int) -> tuple[str, int, str | None] | None:
    cursor = await conn.execute("select state, attempts, locked_by from asyncq.jobs where id = %s", (job_id,))
    return await cursor.fetchone()


async def starts(truth: TruthLog, count: int) -> bool:
    return len(await truth.rows(event="start")) >= count


async def held_up(conn: psycopg.AsyncConnection, purpose: str) -> bool:
    """Whether a worker's connection for this purpose waits for a lock."""
    cursor = await conn.execute(
        "select count(*) from pg_stat_activity where application_name like %s and wait_event_type = 'Lock'",
        (f"asyncq {purpose} %",),
    )
    return await cursor.fetchone() == (1,)


async def test_running_jobs_finish_within_the_grace_period(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--grace", "5")
    bystander = start_worker("tests.worker.app", "--queue", "patient")
    await worker.wait_ready()
    await bystander.wait_ready()
    ids = await app.lasting.defer_many(conn, [app.lasting.args(1.0) for _ in range(20)])
    await eventually(lambda: starts(truth, 20), describe="all 20 run")
    worker.terminate()
    await worker.wait_for("stopping")
    late = await app.lasting.defer(conn, 0.0)
    assert await worker.wait() == 0
    assert await truth.counts("start") == dict.fromkeys(ids, 1)
    assert await truth.counts("end") == dict.fromkeys(ids, 1)
    assert "rescued" not in worker.stderr + bystander.stderr
    # What came after the signal was not taken.
    assert await state(conn, late.id) == ("available", 0, None)
    cursor = await conn.execute("select count(*) from asyncq.jobs")
    assert await cursor.fetchone() == (1,)


@pytest.mark.parametrize("task", [app.lasting, app.lasting_patiently], ids=["lease 1 s", "lease 60 s"])
async def test_what_does_not_finish_is_given_back_with_its_attempt(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker, task: Task[[float], None]
) -> None:
    worker = start_worker("tests.worker.app", "--grace", "0.5")
    await worker.wait_ready()
    deferred = await task.defer(conn, 3600.0)
    cursor = await conn.execute("select run_at from asyncq.jobs")
    run_at = await cursor.fetchone()
    await eventually(lambda: starts(truth, 1), describe="it runs")
    worker.terminate()
    assert await worker.wait() == 0
    assert await state(conn, deferred.id) == ("available", 0, None)
    cursor = await conn.execute("select run_at from asyncq.jobs")
    assert await cursor.fetchone() == run_at
    # Another worker takes it at once.
    other = start_worker("tests.worker.app", "--grace", "0")
    await eventually(lambda: starts(truth, 2), 10, describe="it runs elsewhere")
    other.terminate()
    assert await other.wait() == 0


async def test_many_deploys_use_up_no_attempt(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    deferred = await app.lasting.options(max_attempts=2).defer(conn, 3600.0)
    for deploy in range(1, 4):
        worker = start_worker("tests.worker.app", "--grace", "0")
        await eventually(lambda wanted=deploy: starts(truth, wanted), 10, describe="it runs")
        worker.terminate()
        assert await worker.wait() == 0
        assert await state(conn, deferred.id) == ("available", 0, None)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_stops_at_once(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker, second: signal.Signals
) -> None:
    worker = start_worker("tests.worker.app", "--grace", "600")
    await worker.wait_ready()
    deferred = await app.lasting.defer(conn, 3600.0)
    await eventually(lambda: starts(truth, 1), describe="it runs")
    worker.terminate()
    await worker.wait_for("stopping")
    worker.send(second)
    asked = time.monotonic()
    assert await worker.wait() == 5
    assert time.monotonic() - asked < 5
    assert await state(conn, deferred.id) == ("available", 0, None)


async def test_a_handler_that_swallows_cancellation_is_named_and_left_behind(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--grace", "0.5")
    await worker.wait_ready()
    deferred = await app.stubborn.defer(conn)
    await eventually(lambda: starts(truth, 1), describe="it runs")
    worker.terminate()
    await worker.wait_for("cancelled")
    before, asked = _cpu_seconds(worker.pid), time.monotonic()
    busy = 0.0
    while worker.returncode is None:
        assert time.monotonic() - asked < 15
        with suppress(FileNotFoundError, ProcessLookupError):
            busy = (_cpu_seconds(worker.pid) - before) / max(time.monotonic() - asked, 2.0)
        await anyio.sleep(0.05)
    assert worker.returncode == 6
    # It is told again now and then, not at every turn of the loop.
    assert busy < 0.5
    assert f"job {deferred.id} (tests.worker.app.stubborn" in worker.stderr
    assert await state(conn, deferred.id) == ("available", 0, None)


async def test_a_thread_that_goes_on_does_not_hold_the_process(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--grace", "0")
    await worker.wait_ready()
    deferred = await app.in_thread.defer(conn, 3600.0)
    await eventually(lambda: starts(truth, 1), describe="it runs")
    worker.terminate()
    assert await worker.wait() == 6
    assert await state(conn, deferred.id) == ("available", 0, None)


async def test_a_thread_finishes_within_the_grace_period(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--grace", "10")
    await worker.wait_ready()
    deferred = await app.in_thread.defer(conn, 1.0)
    await eventually(lambda: starts(truth, 1), describe="it runs")
    worker.terminate()
    assert await worker.wait() == 0
    assert len(await truth.rows(deferred.id, "end")) == 1
    assert await state(conn, deferred.id) is None


async def test_nothing_starts_after_the_signal_while_a_claim_is_under_way(
    conn: psycopg.AsyncConnection, dsn: str, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app")
    await worker.wait_ready()
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("lock table asyncq.jobs in access exclusive mode")
        await holder.execute(
            "insert into asyncq.jobs (queue, task, args) values ('work', 'tests.worker.app.quick', '{\"number\": 1}')"
        )
        await holder.execute("notify asyncq, 'work'")
        # The claim cannot see the row before the lock is gone, and is sent by a notification of another transaction.
        await conn.execute("notify asyncq, 'work'")
        await eventually(lambda: held_up(conn, "jobs"), describe="the claim waits for the table")
        worker.terminate()
        await worker.wait_for("stopping")
    assert await worker.wait() == 0
    assert await truth.rows() == []
    cursor = await conn.execute("select state, attempts from asyncq.jobs")
    assert await cursor.fetchall() == [("available", 0)]


async def test_a_claim_that_waits_for_the_table_at_the_stop_is_not_carried_out_later(
    conn: psycopg.AsyncConnection, dsn: str, truth: TruthLog, start_worker: StartWorker
) -> None:
    """A migration holds the table for longer than the worker takes to stop."""
    worker = start_worker("tests.worker.app")
    await worker.wait_ready()
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("select asyncq.defer('tests.worker.app.quick', '{\"number\": 1}', queue => 'work')")
        await holder.execute("lock table asyncq.jobs in access exclusive mode")
        await conn.execute("notify asyncq, 'work'")
        await eventually(lambda: held_up(conn, "jobs"), describe="the claim waits for the table")
        worker.terminate()
        assert await worker.wait() == 0

    async def gone() -> bool:
        cursor = await conn.execute("select count(*) from pg_stat_activity where application_name like 'asyncq %'")
        return await cursor.fetchone() == (0,)

    await eventually(gone, describe="its backends are gone")
    cursor = await conn.execute("select state, attempts from asyncq.jobs")
    assert await cursor.fetchall() == [("available", 0)]


async def test_a_worker_whose_start_hangs_can_be_stopped(
    dsn: str, start_worker: StartWorker, conn: psycopg.AsyncConnection
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("lock table asyncq.migrations in access exclusive mode")
        worker = start_worker("tests.worker.app")
        await eventually(lambda: held_up(conn, "leases"), 15, describe="the start hangs")
        worker.terminate()
        assert await worker.wait(5) == 0


async def test_a_name_that_is_slow_to_be_resolved_is_not_blamed_on_handlers(
    tmp_path: Path, dsn: str, start_worker: StartWorker
) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError\n")  # which asks in threads that hold up nobody
    (tmp_path / "slow_names.py").write_text(
        "import socket, time\nfrom asyncq import Queue\nqueue = Queue()\n"
        "def resolve(*args, **kwargs):\n    print('asked', flush=True)\n    time.sleep(3600)\n"
        "socket.getaddrinfo = resolve\n"
    )
    worker = start_worker("slow_names", dsn=with_options(dsn, host="localhost"))
    await eventually(lambda: "asked" in worker.stdout, 10)
    worker.terminate()
    assert await worker.wait(10) == 0
    assert "handlers" not in worker.stderr


async def test_a_thread_that_a_handler_left_behind_does_not_hold_the_process(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--grace", "0")
    await worker.wait_ready()
    deferred = await app.leaves_a_thread.defer(conn)
    await eventually(lambda: starts(truth, 1), describe="it runs")
    worker.terminate()
    assert await worker.wait() == 6
    assert "left tasks or threads behind" in worker.stderr
    assert await state(conn, deferred.id) == ("available", 0, None)


async def test_a_handlers_child_task_that_exits_fails_its_job_and_nothing_more(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app", "--grace", "10")
    await worker.wait_ready()
    neighbour = await app.lasting_patiently.defer(conn, 2.0)
    await eventually(lambda: starts(truth, 1), describe="the neighbour runs")
    bad = await app.exits_in_a_child.defer(conn)

    async def discarded() -> bool:
        return [job.id for job in await app.patient.discarded(conn)] == [bad.id]

    await eventually(discarded, 10, describe="the job that exits has failed")
    worker.terminate()
    assert await worker.wait() == 0
    assert [entry.job_id for entry in await truth.rows(event="end")] == [neighbour.id]


async def test_a_process_that_a_handler_forks_can_be_terminated(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    worker = start_worker("tests.worker.app")
    await worker.wait_ready()
    await app.forks.defer(conn)

    async def ended() -> list[str | None]:
        return [entry.note for entry in await truth.rows(event="end")]

    assert await eventually(ended, 15, describe="the handler ends") == ["-15"]
    assert "stopping" not in worker.stderr
    worker.terminate()
    assert await worker.wait() == 0


async def test_an_idle_worker_stops_at_once(start_worker: StartWorker) -> None:
    worker = start_worker("tests.worker.app")
    await worker.wait_ready()
    asked = time.monotonic()
    worker.send(signal.SIGINT)
    assert await worker.wait() == 0
    assert time.monotonic() - asked < 3


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100
