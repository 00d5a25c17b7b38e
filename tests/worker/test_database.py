"""The worker and its server: outages, settings, and how little an idle worker sends."""

import logging
import os
import re
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import anyio
import psycopg
import pytest

from asyncq import Cancel, ExitCode, Queue, Worker, WorkerOptions, current_job
from asyncq.db import connection, jobs, listen
from asyncq.db.migrate import migrate
from asyncq.errors import ConfigurationError, SchemaOutdatedError
from asyncq.worker import trouble
from tests.blackhole import BlackHole
from tests.eventually import eventually
from tests.servers import Postgres, with_options
from tests.worker.inside import recording, running_worker


async def one(conn: psycopg.AsyncConnection, statement: str) -> Any:
    cursor = await conn.execute(statement.encode())
    row = await cursor.fetchone()
    return row[0] if row else None


def listening() -> str:
    return f"select pid from pg_stat_activity where application_name like 'asyncq listen %:{os.getpid()}:%'"


async def test_a_listener_that_lost_its_connection_hears_again(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    started: list[float] = []

    @queue.task(name="task")
    async def task() -> None:
        started.append(time.perf_counter())

    async with running_worker(queue, dsn, WorkerOptions(poll=timedelta(seconds=300))):
        for times in (1, 2):
            first = await one(conn, listening())
            assert await one(conn, f"select pg_terminate_backend({first})")

            async def again(old: object = first) -> bool:
                present = await one(conn, listening())
                return present is not None and present != old

            await eventually(again, describe="another listener is there")
            asked = time.perf_counter()
            await task.defer(conn)
            await eventually(lambda wanted=times: len(started) == wanted, describe="the job starts")
            assert started[-1] - asked < 2
        assert await one(conn, f"select count(*) from ({listening()}) listeners") == 1


async def test_a_job_deferred_while_nobody_listened_starts_after_the_reconnection(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue()
    started: list[int] = []

    @queue.task(name="task")
    async def task() -> None:
        started.append(1)

    async with running_worker(queue, dsn, WorkerOptions(poll=timedelta(seconds=300))):
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'asyncq listen%'"
        )
        await task.defer(conn)
        await eventually(lambda: bool(started), describe="the job starts")


@pytest.mark.parametrize("connection", ["jobs", "leases", "listen", "%"])
async def test_a_killed_backend_loses_no_job(dsn: str, conn: psycopg.AsyncConnection, connection: str) -> None:
    queue = Queue(lease=timedelta(seconds=2))
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        await anyio.sleep(0.02)
        ran.append(number)

    async with running_worker(queue, dsn, WorkerOptions(concurrency=10)):
        await task.defer_many(conn, [task.args(number) for number in range(300)])
        for _ in range(5):
            seen = len(ran)
            await conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name like %s",
                (f"asyncq {connection} %",),
            )
            await eventually(lambda old=seen: len(ran) > old or len(ran) >= 300, 15, describe="it goes on")

        async def empty() -> bool:
            return await one(conn, "select count(*) from asyncq.jobs") == 0

        await eventually(empty, 20, describe="all jobs are done")
    assert set(ran) == set(range(300))
    # A claim whose answer was lost is rescued and counts an attempt, but never runs beside another run.
    assert len(ran) <= 350


async def test_the_worker_survives_a_restart_of_the_server(own_postgres: Postgres) -> None:
    dsn = own_postgres.create_database()
    queue = Queue()
    ran: list[int] = []
    gate = anyio.Event()

    @queue.task(name="task")
    async def task(number: int) -> None:
        if number == 0:
            await gate.wait()
        ran.append(number)

    async with running_worker(queue, dsn, WorkerOptions(poll=timedelta(seconds=300))) as inside:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await task.defer(conn, 0)
            await eventually(lambda: one(conn, "select 1 from asyncq.jobs where state = 'running'"), describe="it runs")
        await anyio.to_thread.run_sync(own_postgres.server.restart)
        gate.set()
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:

            async def none() -> bool:
                return await one(conn, "select count(*) from asyncq.jobs") == 0

            await eventually(none, 15, describe="the outcome of the run in the outage is written")
            await eventually(lambda: one(conn, listening()), 15, describe="it listens again")
            asked = time.perf_counter()
            await task.defer(conn, 1)
            await eventually(lambda: ran == [0, 1], describe="a notification wakes it")
            assert time.perf_counter() - asked < 2
    assert inside.code is ExitCode.STOPPED


async def test_five_thousand_jobs_on_a_serializable_database_are_done_once(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    name = await one(conn, "select current_database()")
    await conn.execute(f"alter database {name} set default_transaction_isolation = 'serializable'".encode())
    queue = Queue(max_attempts=1)
    task, ran = recording(queue)

    await task.defer_many(conn, [task.args(number) for number in range(5000)])
    options = WorkerOptions(concurrency=16)
    async with AsyncExitStack() as workers:
        for _ in range(4):
            await workers.enter_async_context(running_worker(queue, dsn, options))

        async def empty() -> bool:
            return await one(conn, "select count(*) from asyncq.jobs") == 0

        await eventually(empty, 30, describe="all jobs are done")
    assert sorted(ran) == list(range(5000))


@pytest.mark.once
async def test_an_idle_worker_sends_almost_nothing(own_postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five minutes of idling, with the poll, the listener's probe and the rescue's look at a thirtieth of their times.

    At most five statements a minute, by the server's log: a claim, a look at what is due, a rescue, two probes.
    """
    monkeypatch.setattr("asyncq.worker.listen.REPORT_SECONDS", 1.0)
    own_postgres.execute("alter system set log_statement = 'all'")
    own_postgres.execute("alter system set log_line_prefix = '%a|'")
    own_postgres.execute("select pg_reload_conf()")
    dsn = own_postgres.create_database()

    def statements() -> int:
        lines = own_postgres.server.log.read_text(errors="replace").splitlines()
        return sum(bool(re.match(r"asyncq (jobs|leases|listen) .*\|LOG:  (execute|statement)", line)) for line in lines)

    async with running_worker(Queue(lease=timedelta(seconds=2)), dsn, WorkerOptions(poll=timedelta(seconds=2))):
        # Started, cleaned up once, and past the rescue's first wait.
        await anyio.sleep(6.0)
        before = statements()
        await anyio.sleep(10.0)
        sent = statements() - before
    assert before > 5
    # Each loop may fall into the window once more than on average.
    assert sent <= 25 + 3, f"{sent} statements"


async def test_no_schema_is_an_error_that_says_what_to_do(empty_dsn: str) -> None:
    with pytest.raises(SchemaOutdatedError, match="asyncq migrate"):
        await Worker([Queue()], empty_dsn).run()


async def test_a_server_that_takes_connections_and_never_answers_is_not_reachable(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncq.worker.worker.START_SECONDS", 0.3)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as silent:
        port = silent.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(psycopg.OperationalError, match="did not answer"):
            await Worker([Queue()], with_options(dsn, host="127.0.0.1", port=port)).run()


def test_a_dsn_to_listen_on_that_cannot_be_read_is_named(dsn: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^listen_dsn: the DSN cannot be read"):
        Worker([Queue()], dsn, WorkerOptions(listen_dsn="postgresql://app:p@ss@db/shop"))


async def test_a_row_that_somebody_else_holds_is_finished_once_it_is_free(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue(lease=timedelta(seconds=1))
    gate = anyio.Event()
    ran: list[int] = []

    @queue.task(name="task")
    async def task(number: int) -> None:
        if number == 0:
            await gate.wait()
        ran.append(number)

    async with running_worker(queue, dsn):
        await task.defer(conn, 0)
        await eventually(lambda: one(conn, "select 1 from asyncq.jobs where state = 'running'"), describe="it runs")
        async with await psycopg.AsyncConnection.connect(dsn) as holder:
            await holder.execute("select * from asyncq.jobs for update")
            gate.set()
            await eventually(lambda: ran == [0], describe="the handler returned")
            await task.defer_many(conn, [task.args(number) for number in range(1, 50)])

            async def others_are_done() -> bool:
                return await one(conn, "select count(*) from asyncq.jobs") == 1

            await eventually(others_are_done, describe="the others are not held up")

        async def empty() -> bool:
            return await one(conn, "select count(*) from asyncq.jobs") == 0

        await eventually(empty, describe="the held row is finished")
    assert sorted(ran) == list(range(50))


async def test_cancelling_the_host_gives_the_jobs_back(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    seen: list[str] = []

    @queue.task(name="task")
    async def task() -> None:
        seen.append("start")
        try:
            await anyio.sleep(3600)
        except BaseException:
            seen.append("cancelled")
            raise

    async with anyio.create_task_group() as group:
        await group.start(Worker([queue], dsn).run)
        await task.defer(conn)
        await eventually(lambda: seen == ["start"], describe="it runs")
        group.cancel_scope.cancel()
    assert seen == ["start", "cancelled"]
    cursor = await conn.execute("select state, attempts, locked_by from asyncq.jobs")
    assert await cursor.fetchall() == [("available", 0, None)]

    async def gone() -> bool:
        return await one(conn, "select count(*) from pg_stat_activity where application_name like 'asyncq %'") == 0

    await eventually(gone, describe="its connections are closed")


async def test_a_lost_table_ends_the_worker_with_its_error(
    dsn: str, conn: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trouble, "PERMANENT_SECONDS", 0.5)
    caplog.set_level(logging.WARNING, "asyncq")
    worker = Worker([Queue()], dsn, WorkerOptions(poll=timedelta(seconds=0.1)))
    with pytest.RaisesGroup(psycopg.errors.UndefinedTable):
        async with anyio.create_task_group() as group:
            await group.start(worker.run)
            await conn.execute("drop table asyncq.jobs")
            await anyio.sleep_forever()
    assert any("loop died" in record.getMessage() for record in caplog.records)


async def test_a_migration_that_changes_a_column_does_not_stop_a_worker(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue()
    task, ran = recording(queue)

    async with running_worker(queue, dsn):
        await task.defer(conn, 1)
        await eventually(lambda: ran == [1], describe="its statements are prepared")
        await conn.execute("alter table asyncq.jobs alter attempts type bigint")
        await conn.execute("alter table asyncq.jobs add column added int")
        await task.defer(conn, 2)
        await eventually(lambda: ran == [1, 2], describe="it goes on")


async def test_a_job_that_was_lost_and_whose_first_run_has_ended_starts_at_once(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue()
    starts: list[float] = []
    ended: list[float] = []

    @queue.task(name="task")
    async def task() -> None:
        starts.append(time.monotonic())
        try:
            if len(starts) == 1:
                await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.5)
            ended.append(time.monotonic())

    async with running_worker(queue, dsn, WorkerOptions(poll=timedelta(seconds=300))) as inside:
        await task.defer(conn)
        await eventually(lambda: len(starts) == 1, describe="it runs")
        await conn.execute(
            "update asyncq.jobs set state = 'available', lease_token = null, leased_until = null, locked_by = null"
        )
        # The heartbeat is 20 seconds away: the claim of the same job finds out.
        await conn.execute("notify asyncq, 'default'")
        await eventually(lambda: len(starts) == 2, describe="it runs again")
        assert starts[1] >= ended[0]
        assert starts[1] - ended[0] < 1
    assert inside.code is ExitCode.STOPPED


async def test_one_row_that_the_database_refuses_holds_nothing_up(
    dsn: str, conn: psycopg.AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue()
    task, ran = recording(queue)

    await conn.execute(
        """create function refuse() returns trigger language plpgsql as $$
        begin
            if old.args ->> 'number' = '7' then raise exception 'not this one'; end if;
            return old;
        end $$"""
    )
    await conn.execute("create trigger refuse before delete on asyncq.jobs for each row execute function refuse()")
    await task.defer_many(conn, [task.args(number) for number in range(20)])
    async with running_worker(queue, dsn):

        async def one_is_left() -> bool:
            return await one(conn, "select count(*) from asyncq.jobs") == 1

        await eventually(one_is_left, describe="the others are written")
        await conn.execute("drop trigger refuse on asyncq.jobs")

        async def none_is_left() -> bool:
            return await one(conn, "select count(*) from asyncq.jobs") == 0

        await eventually(none_is_left, describe="and it too, once it is accepted")
    assert sorted(ran) == list(range(20))
    assert sum("refuses its outcome" in record.getMessage() for record in caplog.records) == 1


async def test_a_worker_serves_a_database_without_an_encoding(postgres: Postgres) -> None:
    postgres.execute("create database bytes template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'")
    dsn = postgres.dsn_of("bytes")
    try:
        await migrate(dsn)
        queue = Queue()
        ran: list[str] = []

        @queue.task(name="task")
        async def task(name: str) -> None:
            ran.append(name)
            raise Cancel("schön")

        async with (
            running_worker(queue, dsn),
            await psycopg.AsyncConnection.connect(dsn, autocommit=True, client_encoding="utf8") as conn,
        ):
            await task.defer(conn, "größer")
            await eventually(lambda: ran == ["größer"], describe="it runs")

            async def reason() -> bool:
                return await one(conn, "select last_error from asyncq.jobs where state = 'cancelled'") == "schön"

            await eventually(reason, describe="the reason is written")
    finally:
        postgres.drop_database(dsn)


async def test_the_shortest_lease_of_any_task_sets_the_pace_of_the_rescue(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue(lease=timedelta(hours=1))
    ran: list[int] = []

    @queue.task(name="task", lease=timedelta(seconds=1))
    async def task() -> None:
        ran.append(current_job().attempts)

    async with running_worker(queue, dsn):
        # Past its first look, which saw nothing running.
        await anyio.sleep(4.0)
        await conn.execute(
            """insert into asyncq.jobs
            (queue, task, state, attempts, locked_by, lease_token, leased_until, attempted_at, lease_seconds)
            values ('default', 'task', 'running', 1, 'dead', 1, now() + interval '1 s', now(), 1)"""
        )
        await eventually(lambda: ran == [2], 6, describe="it is rescued")


async def test_a_server_that_falls_silent_behind_a_proxy_is_left_for_a_new_connection(
    dsn: str, conn: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy keeps acknowledging, so that neither keepalives nor TCP time-outs notice anything."""
    monkeypatch.setattr(connection, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr("asyncq.worker.listen.REPORT_SECONDS", 1.0)
    monkeypatch.setattr(listen, "ANSWER_SECONDS", 1.0)
    queue = Queue(lease=timedelta(seconds=10))
    task, ran = recording(queue)

    async with BlackHole(dsn) as proxy, running_worker(queue, proxy.dsn, WorkerOptions(poll=timedelta(seconds=1))):
        await task.defer(conn, 1)
        await eventually(lambda: ran == [1], describe="it works through the proxy")
        proxy.swallow()
        await task.defer(conn, 2)
        await eventually(lambda: ran == [1, 2], 20, describe="new connections are made")
        await task.defer(conn, 3)
        await eventually(lambda: ran == [1, 2, 3], describe="and notifications come again")


async def test_a_claim_whose_answer_is_lost_costs_no_attempt(
    dsn: str, conn: psycopg.AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(max_attempts=1)
    attempts: list[int] = []
    lost: list[int] = []
    claim = jobs.claim

    async def claim_and_lose_the_answer(*args: Any, **kwargs: Any) -> jobs.Claim:
        answer = await claim(*args, **kwargs)
        if answer.rows and not lost:
            lost.append(answer.rows[0].id)
            raise psycopg.OperationalError("the connection is lost")
        return answer

    monkeypatch.setattr(jobs, "claim", claim_and_lose_the_answer)

    @queue.task(name="task")
    async def task() -> None:
        attempts.append(current_job().attempts)

    async with running_worker(queue, dsn):
        deferred = await task.defer(conn)
        await eventually(lambda: bool(attempts), describe="it runs")
    assert lost == [deferred.id]
    assert attempts == [1]


async def test_attempts_at_the_end_of_their_range_stop_nobody(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    task, ran = recording(queue)

    await task.defer_many(conn, [task.args(number) for number in range(5)])
    await conn.execute("update asyncq.jobs set attempts = 2147483647, max_attempts = 2147483647 where id = 1")
    async with running_worker(queue, dsn):
        await eventually(lambda: sorted(ran) == [0, 1, 2, 3, 4], describe="all ran")


async def test_a_server_that_was_made_read_only_is_waited_for_and_not_written_to(own_postgres: Postgres) -> None:
    """As before a failover: the sockets stay open, and whoever insists could still write."""
    dsn = own_postgres.create_database()
    queue = Queue(max_attempts=1)
    gate = anyio.Event()
    attempts: list[int] = []

    @queue.task(name="task")
    async def task() -> None:
        attempts.append(current_job().attempts)
        await gate.wait()

    async with (
        await psycopg.AsyncConnection.connect(
            dsn, autocommit=True, options="-c default_transaction_read_only=off"
        ) as conn,
        running_worker(queue, dsn),
    ):
        await task.defer(conn)
        await eventually(lambda: attempts == [1], describe="it runs")
        own_postgres.execute("alter system set default_transaction_read_only = on")
        own_postgres.execute("select pg_reload_conf()")
        await eventually(
            lambda: own_postgres.execute("show default_transaction_read_only") == [("on",)], describe="it is read-only"
        )
        gate.set()
        waiting = await task.defer(conn)
        # Longer than the first tries of its loops take.
        await anyio.sleep(1.0)
        cursor = await conn.execute("select id, state, attempts from asyncq.jobs order by id")
        assert await cursor.fetchall() == [(1, "running", 1), (waiting.id, "available", 0)]
        # The session itself may write: a read-only default is only a default.
        with psycopg.connect(
            own_postgres.server.dsn, autocommit=True, options="-c default_transaction_read_only=off"
        ) as admin:
            admin.execute("alter system reset default_transaction_read_only")
            admin.execute("select pg_reload_conf()")

        async def none() -> bool:
            return await one(conn, "select count(*) from asyncq.jobs") == 0

        await eventually(none, 20, describe="both jobs are done")
    assert attempts == [1, 1]
