"""The locks by which a sender sees whether to notify: who holds them, and what each way to put a job in makes of it."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import anyio
import psycopg
import pytest
from psycopg import IsolationLevel, errors

from asyncq import Queue
from asyncq.db import quiet
from asyncq.db.connection import address_of
from asyncq.db.listen import Heard, Listening, listening
from asyncq.db.migrate import migrate
from tests.eventually import eventually
from tests.servers import Postgres, majors
from tests.sql.rows import notifications
from tests.sql.shop import draw, send

Connection = psycopg.AsyncConnection


@pytest.fixture
async def worker(dsn: str) -> AsyncGenerator[Listening]:
    """The connection on which a worker listens."""
    async with listening(address_of(dsn, "listen 1"), "asyncq") as listens:
        yield listens


@pytest.fixture
async def other(dsn: str) -> AsyncGenerator[Listening]:
    """The same of another worker."""
    async with listening(address_of(dsn, "listen 2"), "asyncq") as listens:
        yield listens


async def change(worker: Listening, held: str, wanted: str, queue: str = "emails") -> bool:
    return (await quiet.hold(worker, "asyncq", [quiet.Change(queue, held, wanted)]))[queue]


async def locks(conn: Connection) -> list[str]:
    """Give the modes of all advisory locks in this database, also those of senders."""
    cursor = await conn.execute(
        """select mode from pg_locks where locktype = 'advisory' and granted
        and database = (select oid from pg_database where datname = current_database()) order by mode"""
    )
    return [mode for (mode,) in await cursor.fetchall()]


@majors(12, 18)
async def test_while_a_queue_is_kept_nobody_notifies_it_and_all_others_are_notified(
    dsn: str, conn: Connection, listening: Connection, worker: Listening
) -> None:
    await migrate(dsn, schema="other")
    elsewhere = Queue("emails", schema="other")

    @elsewhere.task(name="t")
    async def task() -> None: ...

    assert await change(worker, "nothing", "exclusive")
    await listening.execute("listen other")
    await send.defer(conn)
    await send.defer_many(conn, [send.args(), send.args()])
    await conn.execute("select asyncq.defer('t', queue => 'emails')")
    assert await notifications(listening) == []
    await draw.defer(conn, 1)
    await task.defer(conn)
    assert await notifications(listening) == [("asyncq", "reports"), ("other", "emails")]
    assert await change(worker, "exclusive", "nothing")
    await send.defer(conn)
    await send.defer_many(conn, [send.args(), send.args()])
    await conn.execute("select asyncq.defer('t', queue => 'emails')")
    assert await notifications(listening) == [("asyncq", "emails")] * 3
    assert await locks(conn) == []


@pytest.mark.parametrize("level", list(IsolationLevel))
async def test_a_sender_sees_at_once_that_a_queue_is_kept_and_that_it_is_not_any_more(
    tx_conn: Connection, conn: Connection, listening: Connection, worker: Listening, level: IsolationLevel
) -> None:
    await tx_conn.set_isolation_level(level)
    await tx_conn.execute("select count(*) from asyncq.jobs")
    assert await change(worker, "nothing", "exclusive")
    await send.defer(tx_conn)
    await tx_conn.execute("savepoint s")
    await send.defer(tx_conn)
    await tx_conn.execute("rollback to s")
    await tx_conn.commit()
    assert await notifications(listening) == []
    await tx_conn.execute("select count(*) from asyncq.jobs")
    assert await change(worker, "exclusive", "shared")
    await send.defer(tx_conn)
    # What the sender tried is not left in its session.
    assert await locks(conn) == ["ShareLock"]
    await tx_conn.commit()
    assert await notifications(listening) == [("asyncq", "emails")]


async def test_a_job_put_into_the_past_is_always_announced(
    conn: Connection, listening: Connection, worker: Listening
) -> None:
    past = datetime(2024, 1, 1, tzinfo=UTC)
    assert await change(worker, "nothing", "exclusive")
    await send.options(run_at=past).defer(conn)
    await send.options(run_at=past).defer_many(conn, [send.args()])
    await conn.execute("select asyncq.defer('t', queue => 'emails', run_at => now() - interval '1 minute')")
    assert await notifications(listening) == [("asyncq", "\x01emails")] * 3


async def test_a_refused_job_leaves_no_lock(conn: Connection, tx_conn: Connection) -> None:
    with pytest.raises(errors.CheckViolation):
        await tx_conn.execute("select asyncq.defer('t', queue => 'emails', lease_seconds => 0)")
    await tx_conn.rollback()
    with pytest.raises(errors.QueryCanceled):
        await tx_conn.execute("set local statement_timeout = '100ms'; select asyncq.defer('t'), pg_sleep(10)")
    await tx_conn.rollback()
    assert await locks(conn) == []


async def test_who_is_idle_refuses_a_keeper_and_a_keeper_refuses_who_would_be_idle(
    conn: Connection, worker: Listening, other: Listening
) -> None:
    assert await change(worker, "nothing", "shared")
    assert await change(other, "nothing", "shared")
    # Refused, nothing is left of what it had.
    assert not await change(worker, "shared", "exclusive")
    assert await locks(conn) == ["ShareLock"]
    assert await change(other, "shared", "exclusive")
    assert await locks(conn) == ["ExclusiveLock"]
    assert not await change(worker, "nothing", "shared")
    assert not await change(worker, "nothing", "exclusive")
    assert await change(worker, "nothing", "exclusive", "reports")
    assert await change(other, "exclusive", "shared")
    assert await locks(conn) == ["ExclusiveLock", "ShareLock"]
    assert await change(worker, "nothing", "shared")
    assert await change(other, "shared", "nothing")
    assert await change(worker, "shared", "nothing")
    assert await locks(conn) == ["ExclusiveLock"]


async def test_several_queues_change_in_one_statement(conn: Connection, worker: Listening, other: Listening) -> None:
    assert await change(other, "nothing", "exclusive", "b")
    changes = [quiet.Change(queue, "nothing", "shared") for queue in ("a", "b", "c")]
    assert await quiet.hold(worker, "asyncq", changes) == {"a": True, "b": False, "c": True}
    assert await locks(conn) == ["ExclusiveLock", "ShareLock", "ShareLock"]


async def test_what_is_held_ends_with_the_connection(dsn: str, conn: Connection, worker: Listening) -> None:
    async with listening(address_of(dsn, "listen 3"), "asyncq") as gone:
        assert await change(gone, "nothing", "exclusive")
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_locks where mode = 'ExclusiveLock' and objsubid = 1"
        )
        await eventually(lambda: change(worker, "nothing", "shared"), describe="the lock is free")
        with pytest.raises(psycopg.OperationalError):
            await gone.fetch("select 1")


@majors(12, 15, 18)
@pytest.mark.parametrize("level", list(IsolationLevel))
async def test_whoever_may_yet_commit_a_job_is_named_until_its_end(
    tx_conn: Connection, worker: Listening, level: IsolationLevel
) -> None:
    await tx_conn.set_isolation_level(level)
    await tx_conn.execute("select count(*) from asyncq.jobs")
    assert await quiet.writers(worker, "asyncq") == set()
    await tx_conn.execute("savepoint s")
    await send.defer(tx_conn)
    (name,) = await quiet.writers(worker, "asyncq")
    await tx_conn.execute("release s")
    assert await quiet.writers(worker, "asyncq") == {name}
    await tx_conn.commit()
    assert await quiet.writers(worker, "asyncq") == set()


@majors(12, 18)
async def test_of_many_writers_each_is_named(dsn: str, worker: Listening) -> None:
    async with AsyncExitStack() as stack:
        writers = [await stack.enter_async_context(await psycopg.AsyncConnection.connect(dsn)) for _ in range(20)]
        for each in writers:
            await each.execute("select asyncq.defer('t')")
        assert len(await quiet.writers(worker, "asyncq")) == 20
        for each in writers:
            await each.rollback()
        assert await quiet.writers(worker, "asyncq") == set()


@pytest.mark.parametrize("own_postgres", [12, 18], indirect=True)
async def test_sessions_that_hold_each_other_up_by_notifying_are_counted(own_postgres: Postgres) -> None:
    dsn = own_postgres.create_database()
    async with AsyncExitStack() as sessions:
        worker = await sessions.enter_async_context(listening(address_of(dsn, "listen 1"), "asyncq"))
        conns = [
            await sessions.enter_async_context(await psycopg.AsyncConnection.connect(dsn, autocommit=True))
            for _ in range(4)
        ]
        assert await quiet.pressure(worker, "asyncq") == 0
        # Each commit waits for a standby that does not exist, and the first of them keeps the lock.
        own_postgres.execute("alter system set synchronous_standby_names = 'nobody'")
        own_postgres.execute("select pg_reload_conf()")
        seen = anyio.Event()

        async def deferring(conn: Connection) -> None:
            # More than once: commits wait only from when a background process has read the setting, too.
            while not seen.is_set():
                await send.defer(conn)

        async def three() -> bool:
            return await quiet.pressure(worker, "asyncq") == 3

        async with anyio.create_task_group() as group:
            for conn in conns:
                group.start_soon(deferring, conn)
            await eventually(three, describe="three wait for the first")
            seen.set()
            own_postgres.execute("alter system reset synchronous_standby_names")
            own_postgres.execute("select pg_reload_conf()")
        assert await quiet.pressure(worker, "asyncq") == 0


async def test_a_prepared_transaction_is_named_and_keeps_its_name(own_postgres: Postgres) -> None:
    own_postgres.execute("alter system set max_prepared_transactions = 5")
    await anyio.to_thread.run_sync(own_postgres.server.restart)
    dsn = own_postgres.create_database()
    async with (
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn,
        listening(address_of(dsn, "listen 1"), "asyncq") as worker,
    ):
        await conn.execute("begin")
        await send.defer(conn)
        (name,) = await quiet.writers(worker, "asyncq")
        # A transaction that has notified cannot be prepared: only one that was silent comes this far.
        with pytest.raises(errors.FeatureNotSupported):
            await conn.execute("prepare transaction 'loud'")
        assert await change(worker, "nothing", "exclusive")
        await conn.execute("begin")
        await send.defer(conn)
        (name,) = await quiet.writers(worker, "asyncq")
        await conn.execute("prepare transaction 'silent'")
        assert await quiet.writers(worker, "asyncq") == {name}
    await anyio.to_thread.run_sync(own_postgres.server.restart)
    async with (
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn,
        listening(address_of(dsn, "listen 1"), "asyncq") as worker,
    ):
        (name,) = await quiet.writers(worker, "asyncq")
        assert name.startswith("-1/")
        await conn.execute("commit prepared 'silent'")
        assert await quiet.writers(worker, "asyncq") == set()


async def test_what_is_heard_while_statements_are_answered_is_kept(conn: Connection, worker: Listening) -> None:
    for number in range(5):
        await draw.defer(conn, number)
        await worker.probe()
    await send.options(run_at=datetime(2024, 1, 1, tzinfo=UTC)).defer(conn)
    await quiet.ask(worker, "asyncq", ["reports"])
    await worker.probe()
    assert worker.take() == [Heard("reports", past=False, question=False)] * 5 + [
        Heard("emails", past=True, question=False),
        Heard("reports", past=False, question=True),
    ]
    assert worker.take() == []


async def test_an_arrival_and_an_end_of_the_connection_are_told(conn: Connection, worker: Listening) -> None:
    for _ in range(3):
        told = anyio.Event()
        with worker.readable(told.set), anyio.fail_after(5):
            await send.defer(conn)
            await told.wait()
        assert worker.take() == [Heard("emails", past=False, question=False)]
    told = anyio.Event()
    with worker.readable(told.set), anyio.fail_after(5):
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'asyncq listen 1'"
        )
        await told.wait()

    async def ended() -> None:
        while True:
            worker.take()
            await anyio.sleep(0.01)

    with anyio.fail_after(5), pytest.raises(psycopg.OperationalError):
        await ended()


async def test_the_server_gives_up_a_worker_that_vanished(dsn: str) -> None:
    async with listening(address_of(dsn, "listen 1"), "asyncq") as worker:
        idle = (await worker.fetch("show tcp_keepalives_idle"))[0][0]
        timeout = (await worker.fetch("show tcp_user_timeout"))[0][0]
    # Over a socket of the machine's own there is nothing to lose.
    assert (idle, timeout) in (("10", "30000"), ("10", "30s"), ("0", "0"))
