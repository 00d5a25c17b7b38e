"""Deferring on the caller's connection: the job shares the transaction's fate, and nothing else changes."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import AsyncClientCursor, AsyncRawCursor, errors, sql
from psycopg.adapt import Dumper, Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import args_row, class_row, dict_row, kwargs_row, namedtuple_row, scalar_row

from asyncq import Deferred, InvalidArgsError, Queue
from asyncq.db.connection import Session
from tests.servers import Postgres
from tests.sql.rows import claim, count, insert, job, rows, value

Connection = psycopg.AsyncConnection[Any]

IDLE, INTRANS, INERROR = TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR

queue = Queue("emails", max_attempts=7, lease=timedelta(seconds=30))


@queue.task(name="send", priority=4)
async def send(user_id: int, text: str = "") -> None: ...


@queue.task(name="other")
async def other(user_id: int) -> None: ...


@pytest.fixture
async def orders(conn: Connection) -> Connection:
    """A business table, seen from a connection of its own."""
    await conn.execute("create table orders (id int primary key)")
    return conn


async def both(conn: Connection) -> tuple[int, int]:
    """Count business rows and jobs, as everybody sees them."""
    return await value(conn, "select count(*) from orders"), await count(conn)


# --- One fate ---------------------------------------------------------------------------------------------------------


async def test_commit_brings_both(orders: Connection, tx_conn: Connection) -> None:
    await tx_conn.execute("insert into orders values (1)")
    await send.defer(tx_conn, 1)
    assert await both(orders) == (0, 0)
    await tx_conn.commit()
    assert await both(orders) == (1, 1)


async def test_rollback_brings_neither(orders: Connection, tx_conn: Connection) -> None:
    await tx_conn.execute("insert into orders values (1)")
    await send.defer(tx_conn, 1)
    await tx_conn.rollback()
    assert await both(orders) == (0, 0)


async def test_an_exception_after_the_defer_brings_neither(orders: Connection, dsn: str) -> None:
    async def fails() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            await conn.execute("insert into orders values (1)")
            await send.defer(conn, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert await both(orders) == (0, 0)


async def test_a_savepoint_rolled_back_takes_its_jobs_and_no_others(orders: Connection, tx_conn: Connection) -> None:
    async def fails() -> None:
        async with tx_conn.transaction():
            await tx_conn.execute("insert into orders values (2)")
            await send.defer(tx_conn, 2)
            raise ZeroDivisionError

    await send.defer(tx_conn, 1)
    with pytest.raises(ZeroDivisionError):
        await fails()
    await tx_conn.commit()
    assert await both(orders) == (0, 1)
    assert await value(orders, "select args from asyncq.jobs") == {"user_id": 1}


async def test_autocommit_without_a_transaction_is_there_at_once(orders: Connection, conn: Connection) -> None:
    await send.defer(conn, 1)
    assert await both(orders) == (0, 1)
    assert conn.info.transaction_status == IDLE


@pytest.mark.parametrize("fails", [False, True])
async def test_autocommit_with_a_transaction_block(
    orders: Connection, conn: Connection, dsn: str, *, fails: bool
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as caller:
        try:
            async with caller.transaction():
                await caller.execute("insert into orders values (1)")
                await send.defer(caller, 1)
                await send.defer_many(caller, [send.args(2), send.args(3)])
                assert await both(orders) == (0, 0)
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    assert await both(orders) == ((0, 0) if fails else (1, 3))


async def test_an_idle_connection_is_left_in_the_transaction_that_the_insert_began(
    conn: Connection, tx_conn: Connection
) -> None:
    many = [send.args(number) for number in range(2_500)]
    assert tx_conn.info.transaction_status == IDLE
    await send.defer(tx_conn, 1)
    assert tx_conn.info.transaction_status == INTRANS
    await tx_conn.rollback()
    for some in (many[:2], many):
        await send.defer_many(tx_conn, some)
        assert tx_conn.info.transaction_status == INTRANS
        assert await count(conn) == 0
        await tx_conn.rollback()
    assert await count(conn) == 0
    await send.defer_many(tx_conn, many)
    await tx_conn.commit()
    assert await count(conn) == 2_500


async def test_a_two_phase_transaction_cannot_be_prepared_and_leaves_no_job(own_postgres: Postgres) -> None:
    """PostgreSQL prepares no transaction that notifies; its own error says so."""
    own_postgres.execute("alter system set max_prepared_transactions = 5")
    own_postgres.server.restart()
    dsn = own_postgres.create_database()
    caller = await psycopg.AsyncConnection.connect(dsn)
    await caller.tpc_begin("order 1")
    await send.defer(caller, 1)
    with pytest.raises(errors.FeatureNotSupported, match="NOTIFY"):
        await caller.tpc_prepare()
    await caller.close()
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        assert await count(conn) == 0


async def test_a_job_that_was_deferred_and_not_committed_is_not_claimed(session: Session, tx_conn: Connection) -> None:
    deferred = await send.defer(tx_conn, 1)
    assert await claim(session, {"emails": 5}, tasks=["send"]) == []
    await tx_conn.commit()
    assert await claim(session, {"emails": 5}, tasks=["send"]) == [deferred.id]


async def test_two_jobs_of_one_transaction_are_claimed_in_their_order(session: Session, tx_conn: Connection) -> None:
    wanted = [(await send.defer(tx_conn, number)).id for number in range(3)]
    wanted += await send.defer_many(tx_conn, [send.args(number) for number in range(3)])
    await tx_conn.commit()
    assert await claim(session, {"emails": 10}, tasks=["send"]) == wanted


# --- What is stored and what comes back -------------------------------------------------------------------------------


async def test_gives_what_was_stored(conn: Connection) -> None:
    deferred = await send.defer(conn, 7, text="ü")
    row = await job(conn, deferred.id)
    assert row is not None
    assert deferred == Deferred(id=row["id"], task="send", queue="emails", run_at=row["run_at"])
    assert (row["queue"], row["task"], row["args"]) == ("emails", "send", {"user_id": 7, "text": "ü"})
    assert (row["priority"], row["max_attempts"], row["lease_seconds"]) == (4, 7, 30.0)
    assert (row["state"], row["attempts"]) == ("available", 0)
    # The statement's time, and the clock while it ran.
    assert timedelta(0) <= row["run_at"] - row["created_at"] < timedelta(seconds=1)


async def test_options_are_stored(conn: Connection) -> None:
    at = datetime(2040, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    bound = send.options(run_at=at, priority=-32_768, queue="elsewhere", max_attempts=32_767)
    deferred = await bound.defer(conn, 7)
    assert (deferred.run_at, deferred.queue) == (at, "elsewhere")
    row = await job(conn, deferred.id)
    assert row is not None
    assert (row["queue"], row["priority"], row["max_attempts"], row["run_at"]) == ("elsewhere", -32_768, 32_767, at)


async def test_a_delay_counts_from_the_statement_not_from_the_transactions_begin(tx_conn: Connection) -> None:
    await tx_conn.execute("select pg_sleep(0.1)")
    deferred = await send.options(delay=timedelta(seconds=60)).defer(tx_conn, 1)
    after_begin = deferred.run_at - await value(tx_conn, "select now()")
    assert timedelta(seconds=60.1) <= after_begin < timedelta(seconds=90)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
@pytest.mark.parametrize(
    "run_at",
    [
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
    ids=["latest", "earliest", "later still", "earlier still"],
)
async def test_the_ends_of_time_leave_the_transaction_usable(tx_conn: Connection, zone: str, run_at: datetime) -> None:
    """Either stored, with a time that can be told, or refused before anything was sent."""
    await tx_conn.execute("select set_config('TimeZone', %s, true)", (zone,))
    try:
        bound = send.options(run_at=run_at)
    except InvalidArgsError:
        return
    deferred = await bound.defer(tx_conn, 1)
    assert abs(deferred.run_at - run_at.replace(tzinfo=UTC)) < timedelta(days=5)
    assert await count(tx_conn) == 1


async def test_the_longest_delay_is_stored(conn: Connection) -> None:
    deferred = await send.options(delay=timedelta(days=36_500)).defer(conn, 1)
    assert deferred.run_at - await value(conn, "select now()") > timedelta(days=36_499)


# --- Refusals leave the transaction usable ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 99_999},
        {"priority": -32_769},
        {"priority": True},
        {"priority": 1.5},
        {"priority": "1"},
        {"priority": 2**63},
        {"priority": 10**5000},
        {"max_attempts": 0},
        {"max_attempts": 40_000},
        {"queue": ""},
        {"queue": "x" * 129},
        {"queue": "nul \x00"},
        {"queue": "half \ud800"},
        {"queue": 5},
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - that is what is refused
        {"run_at": "2030-01-01"},
        {"run_at": 5},
        {"delay": -timedelta(microseconds=1)},
        {"delay": timedelta.max},
        {"delay": 5},
        {"delay": timedelta(1), "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
    ],
)
async def test_wrong_options_are_refused_before_any_sql(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgsError, match="options"):
        send.options(**options)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1, "x", 2), {}),
        (("1",), {}),
        ((1,), {"unknown": 1}),
        ((1, "nul \x00"), {}),
        ((1, "half \ud800"), {}),
        ((1, "x" * 17 * 1024 * 1024), {}),
    ],
    ids=["missing", "too many", "wrong type", "unknown", "NUL", "surrogate", "huge"],
)
async def test_refused_arguments_leave_the_transaction_usable(
    orders: Connection, tx_conn: Connection, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    await tx_conn.execute("insert into orders values (1)")
    with pytest.raises(InvalidArgsError):
        await send.defer(tx_conn, *args, **kwargs)
    with pytest.raises(InvalidArgsError):
        send.args(*args, **kwargs)
    await tx_conn.execute("insert into orders values (2)")
    await tx_conn.commit()
    assert await both(orders) == (2, 0)


async def test_refused_arguments_do_not_even_begin_a_transaction(tx_conn: Connection) -> None:
    wrong: Any = "no number"
    with pytest.raises(InvalidArgsError):
        await send.defer(tx_conn, wrong)
    not_mine: Any = other.args(1)
    with pytest.raises(InvalidArgsError):
        await send.defer_many(tx_conn, [not_mine])
    assert tx_conn.info.transaction_status == IDLE


@pytest.mark.parametrize("wrong", [None, "postgresql://localhost/x", object(), [], dict])
async def test_what_is_no_connection_is_named(wrong: Any) -> None:
    kind = rf"not {type(wrong).__qualname__}$"
    with pytest.raises(TypeError, match=kind):
        await send.defer(wrong, 1)
    with pytest.raises(TypeError, match=kind):
        await send.defer_many(wrong, [send.args(1)])


async def test_a_blocking_connection_is_refused_by_its_name(dsn: str, conn: Connection) -> None:
    with psycopg.connect(dsn) as connection:
        blocking: Any = connection
        with pytest.raises(TypeError, match=r"psycopg\.Connection"):
            await send.defer(blocking, 1)
        with pytest.raises(TypeError, match=r"psycopg\.Connection"):
            await send.defer_many(blocking, [send.args(1)])
        with pytest.raises(TypeError, match=r"psycopg\.Connection"):
            await queue.replay(blocking)
        with pytest.raises(TypeError, match=r"psycopg\.Connection"):
            await queue.discarded(blocking)
    assert await count(conn) == 0


async def test_a_cursor_in_place_of_the_connection_is_named(conn: Connection) -> None:
    cursor: Any = conn.cursor()
    with pytest.raises(TypeError, match=r"psycopg\.AsyncCursor"):
        await send.defer(cursor, 1)


async def test_a_closed_connection_says_so(dsn: str) -> None:
    closed = await psycopg.AsyncConnection.connect(dsn)
    await closed.close()
    for call in (send.defer(closed, 1), send.defer_many(closed, [send.args(number) for number in range(2_500)])):
        with pytest.raises(psycopg.OperationalError, match="closed"):
            await call


async def test_an_aborted_transaction_says_so_at_once(conn: Connection, tx_conn: Connection) -> None:
    with pytest.raises(errors.DivisionByZero):
        await tx_conn.execute("select 1 / 0")
    for call in (
        send.defer(tx_conn, 1),
        send.defer_many(tx_conn, [send.args(1)]),
        send.defer_many(tx_conn, [send.args(number) for number in range(2_500)]),
    ):
        with pytest.raises(errors.InFailedSqlTransaction), anyio.fail_after(5):
            await call
        assert tx_conn.info.transaction_status == INERROR
    await tx_conn.rollback()
    assert await count(conn) == 0
    await send.defer(tx_conn, 1)
    await tx_conn.commit()
    assert await count(conn) == 1


async def test_a_missing_schema_is_the_servers_own_error(empty_dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(empty_dsn) as conn:
        with pytest.raises(errors.UndefinedTable, match="asyncq"):
            await send.defer(conn, 1)
        await conn.rollback()


# --- The connection's own ways ----------------------------------------------------------------------------------------


@dataclass
class Row:
    id: int


def refusing(*args: Any, **kwargs: Any) -> Any:
    raise ZeroDivisionError


FACTORIES = {
    "dict": dict_row,
    "namedtuple": namedtuple_row,
    "class": class_row(Row),
    "scalar": scalar_row,
    "kwargs": kwargs_row(refusing),
    "args": args_row(refusing),
}


async def use_all(conn: Connection) -> list[int]:
    """Call everything that takes the caller's connection; gives the ids of the jobs put in."""
    found = [(await send.defer(conn, 1)).id]
    found += await send.defer_many(conn, [send.args(2), send.args(3)])
    found += await send.defer_many(conn, [send.args(number) for number in range(2_100)])
    assert await queue.discarded(conn) == []
    assert await queue.replay(conn) == []
    return found


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
async def test_any_row_factory(dsn: str, conn: Connection, factory: Any) -> None:
    await insert(conn, queue="emails", state="discarded", finished_at=sql.SQL("now()"))
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=factory) as caller:
        found = [(await send.defer(caller, 1)).id, *await send.defer_many(caller, [send.args(2)])]
        [dead] = await queue.discarded(caller)
        assert await queue.replay(caller) == [dead.id]
        assert caller.row_factory is factory
    assert found == [dead.id + 1, dead.id + 2]


class RaisingCursor(psycopg.AsyncCursor[Any]):
    async def execute(self, *args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize("factory", [AsyncClientCursor, AsyncRawCursor, RaisingCursor])
async def test_any_cursor_factory(dsn: str, factory: Any) -> None:
    caller = await psycopg.AsyncConnection.connect(dsn, cursor_factory=factory)
    assert len(await use_all(caller)) == 2_103
    assert caller.cursor_factory is factory
    await caller.rollback()
    await caller.close()


class ShoutingDumper(Dumper):
    def dump(self, obj: Any) -> bytes:
        return b"[broken"


class ShoutingText(ShoutingDumper):
    oid = psycopg.adapters.types["text"].oid


class RefusingLoader(Loader):
    def load(self, data: Any) -> Any:
        raise ZeroDivisionError


async def test_any_adapters(dsn: str, conn: Connection) -> None:
    await insert(conn, queue="emails", state="discarded", finished_at=sql.SQL("now()"))
    async with await psycopg.AsyncConnection.connect(dsn) as caller:
        for kind in (str, int, float, datetime, list, dict, type(None)):
            caller.adapters.register_dumper(kind, ShoutingText)
        for name in ("int8", "int4", "int2", "text", "timestamptz", "jsonb", "float8"):
            kind = psycopg.adapters.types[name]
            for oid in (kind.oid, kind.array_oid):
                caller.adapters.register_loader(oid, RefusingLoader)
        at = datetime(2040, 1, 1, tzinfo=UTC)
        deferred = await send.options(run_at=at).defer(caller, 1, text="x")
        ids = await send.defer_many(caller, [send.args(2), send.args(3)])
        [dead] = await queue.discarded(caller)
        assert await queue.replay(caller, [dead.id]) == [dead.id]
        # They still hold for the caller.
        with pytest.raises(ZeroDivisionError):
            await (await caller.execute("select 1")).fetchone()
    assert (deferred.run_at, ids) == (at, [deferred.id + 1, deferred.id + 2])
    assert await value(conn, "select count(*) from asyncq.jobs where state = 'available'") == 4


@pytest.mark.parametrize(
    ("setting", "to"),
    [
        ("search_path", ""),
        ("search_path", "pg_catalog"),
        ("DateStyle", "German"),
        ("DateStyle", "SQL, DMY"),
        ("DateStyle", "Postgres, MDY"),
        ("IntervalStyle", "sql_standard"),
        ("TimeZone", "Asia/Kathmandu"),
        ("TimeZone", "XYZ-5:45"),
        ("client_encoding", "LATIN1"),
        ("bytea_output", "escape"),
        ("extra_float_digits", "-15"),
        ("standard_conforming_strings", "off"),
        ("backslash_quote", "on"),
        ("quote_all_identifiers", "on"),
        ("array_nulls", "off"),
        ("default_transaction_isolation", "serializable"),
        ("plan_cache_mode", "force_custom_plan"),
        ("row_security", "off"),
    ],
)
async def test_any_setting_of_the_session(
    dsn: str, conn: Connection, postgres: Postgres, setting: str, to: str
) -> None:
    if setting == "standard_conforming_strings" and postgres.major >= 19:
        pytest.skip("it cannot be turned off any more")
    await insert(conn, queue="emails", state="discarded", finished_at=sql.SQL("now()"))
    async with await psycopg.AsyncConnection.connect(dsn) as caller:
        await caller.execute("select set_config(%s, %s, false)", (setting, to))
        await caller.commit()
        at = datetime(2040, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
        deferred = await send.options(run_at=at).defer(caller, 1, text="back\\slash 'é'")
        many = await send.defer_many(caller, [send.args(1, 'a"b\\'), send.args(2, "NULL"), send.args(3, "{,}")])
        [dead] = await queue.discarded(caller)
        assert await queue.replay(caller) == [dead.id]
    assert deferred.run_at == at
    stored = await rows(conn, "select args from asyncq.jobs where id = any(%s) order by id", [deferred.id, *many])
    assert [row[0]["text"] for row in stored] == ["back\\slash 'é'", 'a"b\\', "NULL", "{,}"]


SNAPSHOT = "select name, setting from pg_catalog.pg_settings where name not like '%file%' order by name"


@pytest.fixture(params=["as psycopg gives it", "autocommit", "repeatable read", "deferrable"])
async def caller(dsn: str, request: pytest.FixtureRequest) -> AsyncGenerator[Connection]:
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=request.param == "autocommit")
    if request.param == "repeatable read":
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    if request.param == "deferrable":
        await connection.set_deferrable(True)
    yield connection
    await connection.rollback()
    await connection.close()


async def test_nothing_of_the_connection_changes(caller: Connection) -> None:
    def attributes() -> list[object]:
        return [
            caller.autocommit,
            caller.isolation_level,
            caller.read_only,
            caller.deferrable,
            caller.row_factory,
            caller.cursor_factory,
            caller.prepare_threshold,
            caller.info.transaction_status,
            caller.info.encoding,
            len(list(caller._notice_handlers)),
        ]

    await caller.execute("select 1")
    before, settings = attributes(), await rows(caller, SNAPSHOT)
    await use_all(caller)
    assert attributes() == before
    assert await rows(caller, SNAPSHOT) == settings
    assert await rows(caller, "select 1 from pg_prepared_statements where name not like '\\_pg3\\_%%'") == []


async def test_a_setting_local_to_the_transaction_stays(tx_conn: Connection) -> None:
    await tx_conn.execute("set local lock_timeout = '5s'")
    await use_all(tx_conn)
    assert await value(tx_conn, "show lock_timeout") == "5s"


async def test_a_serializable_transaction_fails_and_succeeds_as_a_whole(dsn: str, conn: Connection) -> None:
    await conn.execute("create table counter as select 0 as n")
    first, second = [await psycopg.AsyncConnection.connect(dsn) for _ in range(2)]
    for each in (first, second):
        await each.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
        await each.execute("select n from counter")
        await send.defer(each, 1)
    await first.execute("update counter set n = n + 1")
    await first.commit()
    with pytest.raises(errors.SerializationFailure):
        await second.execute("update counter set n = n + 1")
    await second.rollback()
    assert await count(conn) == 1
    await first.close()
    await second.close()


# --- Pipelines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("autocommit", [False, True])
async def test_in_a_pipeline(dsn: str, conn: Connection, *, autocommit: bool) -> None:
    with anyio.fail_after(20):
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit) as caller, caller.pipeline():
            await caller.execute("create table orders (id int)")
            found = await use_all(caller)
            await caller.execute("insert into orders values (1)")
    assert found == sorted(set(found))
    assert await both(conn) == (1, len(found))


async def test_in_a_transaction_within_a_pipeline(dsn: str, conn: Connection) -> None:
    async def fails(caller: Connection) -> None:
        async with caller.transaction():
            await use_all(caller)
            raise ZeroDivisionError

    with anyio.fail_after(20):
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as caller, caller.pipeline():
            with pytest.raises(ZeroDivisionError):
                await fails(caller)
            async with caller.transaction():
                await send.defer(caller, 1)
    assert await count(conn) == 1


async def test_an_earlier_error_in_a_pipeline_comes_out_as_it_is(dsn: str, conn: Connection) -> None:
    async def fails(caller: Connection) -> None:
        async with caller.pipeline():
            await caller.execute("select * from no_such_table")
            await send.defer(caller, 1)

    with anyio.fail_after(20):
        async with await psycopg.AsyncConnection.connect(dsn) as caller:
            with pytest.raises(errors.UndefinedTable, match="no_such_table"):
                await fails(caller)
            await caller.rollback()
            await send.defer(caller, 2)
    assert await value(conn, "select array_agg(args->'user_id') from asyncq.jobs") == [2]


# --- Many at once on one connection -----------------------------------------------------------------------------------


async def test_two_tasks_on_one_connection_take_turns(conn: Connection) -> None:
    found: list[int] = []

    async def put() -> None:
        found.append((await send.defer(conn, 1)).id)
        found.extend(await send.defer_many(conn, [send.args(2), send.args(3)]))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(put)
    assert len(set(found)) == await count(conn) == 30


# --- Event loops ------------------------------------------------------------------------------------------------------


def test_a_queue_belongs_to_no_event_loop(dsn: str) -> None:
    """Not to the first that it was used in: scripts have one after the other, and threads have their own."""

    async def defer(number: int) -> int:
        async with await psycopg.AsyncConnection.connect(dsn) as own:
            ids = await send.defer_many(own, [send.args(number), send.args(number)])
            return len(ids) + len([await send.defer(own, number)])

    assert [asyncio.run(defer(number)) for number in range(2)] == [3, 3]
    with ThreadPoolExecutor(5) as threads:
        running = [threads.submit(asyncio.run, defer(number)) for number in range(5)]
        assert [each.result() for each in running] == [3] * 5
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select count(*) from asyncq.jobs").fetchone() == (21,)
