"""The heartbeat: it extends what is held, says what is not, and stays on its page."""

import time
from contextlib import suppress
from datetime import timedelta

import anyio
import psycopg
import pytest
from anyio.abc import SocketStream
from psycopg import sql

from asyncq.db import connection, jobs
from asyncq.db.connection import Session, address_of
from asyncq.job import Lease
from asyncq.worker.heartbeat import Heartbeat
from tests.eventually import eventually
from tests.servers import majors
from tests.sql.rows import insert, job, rows, running, value

Connection = psycopg.AsyncConnection

LOST, BUSY = False, True

TOKEN = 77

NEARLY_OVER = sql.SQL("now() + interval '1 second'")


async def beat(session: Session, *held: tuple[int, int]) -> dict[int, bool]:
    unwritten = await jobs.heartbeat(session, "asyncq", [Lease(job_id, token, 60) for job_id, token in held])
    return {job_id: busy for (job_id, _), busy in unwritten.items()}


async def test_of_two_leases_of_one_job_only_the_old_one_is_lost(session: Session, conn: Connection) -> None:
    """An old outcome waits to be written while the same worker runs the new claim."""
    job_id = await running(conn, TOKEN + 1)
    unwritten = await jobs.heartbeat(session, "asyncq", [Lease(job_id, TOKEN, 60), Lease(job_id, TOKEN + 1, 60)])
    assert unwritten == {(job_id, TOKEN): LOST}


async def test_thousands_of_leases_are_extended_in_a_moment(session: Session, conn: Connection) -> None:
    """A nested loop over the batch would take seconds."""
    await conn.execute(
        """insert into asyncq.jobs (queue, task, state, attempts, locked_by, lease_token, leased_until, attempted_at)
        select 'q', 't', 'running', 1, 'w', 77, now() + interval '60 s', now() from generate_series(1, 10000)"""
    )
    cursor = await conn.execute("select array_agg(id) from asyncq.jobs")
    row = await cursor.fetchone()
    assert row is not None
    leases = [Lease(job_id, TOKEN, 60) for job_id in row[0]]
    began = time.perf_counter()
    assert await jobs.heartbeat(session, "asyncq", leases) == {}
    extended = time.perf_counter() - began
    began = time.perf_counter()
    assert await jobs.complete(session, "asyncq", leases) == {}
    completed = time.perf_counter() - began
    # Milliseconds a thousand, measured at 20 and 15; the nested loop took 560 and more.
    assert extended < 2
    assert completed < 2


async def test_extends_each_lease_by_its_own_length_and_nothing_else(session: Session, conn: Connection) -> None:
    short = await running(conn, TOKEN, leased_until=NEARLY_OVER, lease_seconds=30)
    long = await running(conn, TOKEN + 1, leased_until=NEARLY_OVER, lease_seconds=600)
    before = [await job(conn, each) for each in (short, long)]
    assert await beat(session, (short, TOKEN), (long, TOKEN + 1)) == {}
    after = [await job(conn, each) for each in (short, long)]
    for old, new, seconds in zip(before, after, (30, 600), strict=True):
        assert old is not None
        assert new is not None
        left = new["leased_until"] - await value(conn, "select now()")
        assert timedelta(seconds=seconds - 20) < left <= timedelta(seconds=seconds)
        assert {**old, "leased_until": None} == {**new, "leased_until": None}


async def test_takes_a_lease_back_that_ran_out_but_was_not_rescued(session: Session, conn: Connection) -> None:
    job_id = await running(conn, TOKEN, leased_until=sql.SQL("now() - interval '1 hour'"))
    assert await beat(session, (job_id, TOKEN)) == {}
    assert await value(conn, "select leased_until > now() from asyncq.jobs") is True


async def test_says_which_leases_are_lost(session: Session, conn: Connection) -> None:
    mine, theirs = await running(conn, TOKEN), await running(conn, TOKEN + 1, leased_until=NEARLY_OVER)
    released = await insert(conn)
    before = await job(conn, theirs)
    lost = await beat(session, (mine, TOKEN), (theirs, TOKEN), (released, TOKEN), (10**9, TOKEN))
    assert lost == {theirs: LOST, released: LOST, 10**9: LOST}
    assert await job(conn, theirs) == before


async def test_a_row_that_a_transaction_holds_is_busy_and_the_others_are_extended(
    session: Session, conn: Connection, tx_conn: Connection
) -> None:
    held = await running(conn, TOKEN, leased_until=NEARLY_OVER)
    free = await running(conn, TOKEN, leased_until=NEARLY_OVER)
    await tx_conn.execute("select 1 from asyncq.jobs where id = %s for update", (held,))
    with anyio.fail_after(5):
        assert await beat(session, (held, TOKEN), (free, TOKEN)) == {held: BUSY}
    extended = await rows(conn, "select id from asyncq.jobs where leased_until > now() + interval '20 seconds'")
    assert extended == [(free,)]
    await tx_conn.rollback()
    assert await beat(session, (held, TOKEN), (free, TOKEN)) == {}


async def test_nothing_held_is_nothing_done(session: Session, conn: Connection) -> None:
    await running(conn, TOKEN)
    assert await beat(session) == {}


@majors(12, 18)
async def test_updates_are_hot(session: Session, conn: Connection) -> None:
    held = [(await running(conn, TOKEN, leased_until=NEARLY_OVER), TOKEN) for _ in range(20)]
    for _ in range(5):
        assert await beat(session, *held) == {}
    # The numbers of a session are all there once it has ended.
    await session.close()

    async def counted() -> tuple[int, int]:
        # Anew in each transaction, and each statement here is one.
        [(updated, hot)] = await rows(
            conn, "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'asyncq.jobs'::regclass"
        )
        assert updated == 100
        return updated, hot

    assert await eventually(counted, 15, describe="the updates are counted") == (100, 100)


async def test_a_beat_does_not_wait_for_a_statement_that_takes_long(dsn: str, conn: Connection) -> None:
    """A rescue's look, where an old snapshot keeps millions of dead rows, on the connection that both use."""
    lease_seconds = 3
    job_id = await running(
        conn, TOKEN, leased_until=sql.SQL("now() + interval '3 seconds'"), lease_seconds=lease_seconds
    )
    lost: list[Lease] = []
    session = Session(address_of(dsn, "leases"))
    heartbeat = Heartbeat(
        session,
        address_of(dsn, "heartbeat"),
        "asyncq",
        patience=3.0,
        held=lambda: [Lease(job_id, TOKEN, lease_seconds)],
        lost=lost.append,
    )

    async def upkeep() -> None:
        await session.fetch("select pg_sleep(30)", {})

    others = "select count(*) from pg_stat_activity where application_name like 'asyncq%'"
    async with anyio.create_task_group() as group:
        group.start_soon(upkeep)
        group.start_soon(heartbeat.run)
        heartbeat.expect(lease_seconds, anyio.current_time())

        async def extended() -> bool:
            return await value(conn, "select leased_until > now() + interval '2.5 seconds' from asyncq.jobs")

        async def nearly_over() -> bool:
            return not await extended()

        for _ in range(2):
            await eventually(nearly_over, lease_seconds, describe="the lease gets old")
            await eventually(extended, lease_seconds, describe="it is extended")
        heartbeat.end()

        async def closed() -> bool:
            return await value(conn, others) == 1

        await eventually(closed, describe="the spare connection is closed")
        group.cancel_scope.cancel()
    await session.close()
    assert lost == []


async def test_a_server_that_takes_the_connection_and_says_no_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a pooler whose server hangs: it logs its clients in by itself."""
    monkeypatch.setattr(connection, "FIRST_ANSWER_SECONDS", 0.2)
    login = b"R\0\0\0\x08\0\0\0\0" + b"S\0\0\0\x18server_version\x0015.0\0" + b"Z\0\0\0\x05I"
    ended: list[bytes] = []

    async def serve(client: SocketStream) -> None:
        async with client:
            await client.receive()
            await client.send(login)
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    ended.append(await client.receive())
            ended.append(b"")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    dsn = f"host=127.0.0.1 port={port} dbname=x user=x sslmode=disable gssencmode=disable"
    async with anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        session = Session(address_of(f"{dsn} target_session_attrs=any", "test"))
        with anyio.move_on_after(5) as in_time, pytest.raises(psycopg.OperationalError):
            await session.fetch("select 1", {})
        assert not in_time.cancelled_caught
        await eventually(lambda: b"" in ended, describe="it closed the connection")
        group.cancel_scope.cancel()
    await listener.aclose()
