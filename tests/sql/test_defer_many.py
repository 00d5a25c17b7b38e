"""Many jobs at once: all or none, their ids in order, and memory that does not grow with their number."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, Generator, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import psycopg
import pytest
from anyio.lowlevel import checkpoint
from psycopg import errors
from psycopg.pq import TransactionStatus

from asyncq import InvalidArgsError, Queue, TaskArgs
from asyncq.task import BATCH_CHARACTERS, BATCH_ITEMS
from tests.eventually import eventually
from tests.sql.rows import count, rows, value

Connection = psycopg.AsyncConnection[Any]

queue = Queue("q", max_attempts=3)


@queue.task(name="number")
async def number(n: int, text: str = "") -> None: ...


@queue.task(name="other")
async def other(n: int) -> None: ...


async def stored(conn: Connection, ids: list[int]) -> list[int]:
    """Give the argument of each id, in the order of the ids."""
    found = await rows(
        conn,
        "select j.args->'n' from unnest(%s::bigint[]) with ordinality as given (id, place)"
        " join asyncq.jobs j on j.id = given.id order by place",
        ids,
    )
    return [row[0] for row in found]


async def test_no_jobs_are_no_sql(tx_conn: Connection) -> None:
    assert await number.defer_many(tx_conn, []) == []
    assert await number.defer_many(tx_conn, iter(())) == []
    assert tx_conn.info.transaction_status == TransactionStatus.IDLE


async def test_no_jobs_are_no_sql_in_an_aborted_transaction_either(tx_conn: Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await tx_conn.execute("select 1 / 0")
    assert await number.defer_many(tx_conn, []) == []


@pytest.mark.parametrize("many", [1, 2, BATCH_ITEMS - 1, BATCH_ITEMS, BATCH_ITEMS + 1, 5_000])
@pytest.mark.parametrize("autocommit", [False, True])
async def test_ids_come_in_the_order_of_the_calls(conn: Connection, dsn: str, many: int, *, autocommit: bool) -> None:
    # The order is not that of any column.
    wanted = [(each * 7_919) % many for each in range(many)]
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit) as caller:
        ids = await number.defer_many(caller, [number.args(n) for n in wanted])
    assert ids == sorted(set(ids))
    assert await stored(conn, ids) == wanted
    assert await count(conn) == many


async def test_options_hold_for_all(conn: Connection) -> None:
    at = datetime(2040, 1, 1, tzinfo=UTC)
    bound = number.options(priority=5, queue="elsewhere", run_at=at, max_attempts=1)
    await bound.defer_many(conn, [number.args(n) for n in range(BATCH_ITEMS + 1)])
    kinds = await rows(
        conn, "select distinct queue, task, priority, run_at, max_attempts, lease_seconds from asyncq.jobs"
    )
    assert kinds == [("elsewhere", "number", 5, at, 1, 60.0)]


async def test_a_generator_is_read_once(conn: Connection) -> None:
    seen: list[int] = []

    def calls() -> Generator[Any]:
        for n in range(4_500):
            seen.append(n)
            yield number.args(n)

    ids = await number.defer_many(conn, calls())
    assert seen == await stored(conn, ids) == list(range(4_500))


async def test_large_arguments_are_split_by_their_size(conn: Connection) -> None:
    text = "x" * (BATCH_CHARACTERS // 3)
    ids = await number.defer_many(conn, [number.args(n, text) for n in range(10)])
    assert await stored(conn, ids) == list(range(10))
    assert await value(conn, "select min(length(args->>'text')) from asyncq.jobs") == len(text)


def failing(after: int, error: Exception | None = None) -> Iterator[Any]:
    """Calls that end with an error, or with the arguments of another task."""
    for n in range(after):
        yield number.args(n)
    if error is not None:
        raise error
    yield other.args(1)


@pytest.mark.parametrize("after", [0, 1, BATCH_ITEMS, BATCH_ITEMS + 1, 2 * BATCH_ITEMS + 1, 3 * BATCH_ITEMS])
async def test_autocommit_stores_none_when_the_calls_fail_half_way(conn: Connection, after: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await number.defer_many(conn, failing(after, ZeroDivisionError()))
    with pytest.raises(InvalidArgsError, match="other"):
        await number.defer_many(conn, failing(after))
    assert await count(conn) == 0
    assert conn.info.transaction_status == TransactionStatus.IDLE
    assert len(await number.defer_many(conn, [number.args(1)])) == 1


@pytest.mark.parametrize("after", [0, 1, BATCH_ITEMS + 1, 3 * BATCH_ITEMS])
@pytest.mark.parametrize("autocommit", [False, True])
async def test_in_a_transaction_only_the_jobs_are_undone(
    conn: Connection, dsn: str, after: int, *, autocommit: bool
) -> None:
    await conn.execute("create table orders (id int)")
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit) as caller, caller.transaction():
        await caller.execute("insert into orders values (1)")
        await number.defer_many(caller, [number.args(1)])
        for error in (ZeroDivisionError(), None):
            with pytest.raises((ZeroDivisionError, InvalidArgsError)):
                await number.defer_many(caller, failing(after, error))
        await caller.execute("insert into orders values (2)")
    assert (await value(conn, "select count(*) from orders"), await count(conn)) == (2, 1)


async def test_on_an_idle_connection_the_failed_half_is_undone_and_nothing_is_committed(
    conn: Connection, tx_conn: Connection
) -> None:
    with pytest.raises(ZeroDivisionError):
        await number.defer_many(tx_conn, failing(2 * BATCH_ITEMS + 1, ZeroDivisionError()))
    assert await count(tx_conn) == 0
    await number.defer_many(tx_conn, [number.args(1)])
    await tx_conn.commit()
    assert await count(conn) == 1


@pytest.mark.parametrize("wrong", [None, 1, "number", (1,), {"n": 1}])
async def test_only_what_args_made_is_taken(conn: Connection, wrong: object) -> None:
    for position in (0, 5):
        calls: list[Any] = [number.args(n) for n in range(10)]
        calls[position] = wrong
        with pytest.raises(InvalidArgsError, match="args"):
            await number.defer_many(conn, calls)
    assert await count(conn) == 0


async def test_args_of_the_task_serve_its_options_too(conn: Connection) -> None:
    ids = await number.options(priority=1).defer_many(conn, [number.args(1), number.args(2)])
    assert await stored(conn, ids) == [1, 2]


async def test_a_hundred_thousand_jobs_go_in_as_a_whole(conn: Connection, tx_conn: Connection) -> None:
    ids = await number.defer_many(tx_conn, (number.args(n) for n in range(100_000)))
    assert await count(conn) == 0
    await tx_conn.commit()
    assert len(ids) == len(set(ids)) == await count(conn) == 100_000
    in_order = """
        select bool_and((args->>'n')::int = place)
        from (select args, row_number() over (order by id) - 1 as place from asyncq.jobs) j
    """
    assert await value(conn, in_order) is True


async def test_memory_does_not_grow_with_the_number_of_jobs(conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncq.task.BATCH_ITEMS", 100)
    text = "x" * 1_000
    await number.defer_many(conn, [number.args(0)])
    tracemalloc.start()
    try:
        ids = await number.defer_many(conn, (number.args(n, text) for n in range(10_000)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ids) == 10_000
    # The arguments of all of them are more than 10 MB.
    assert peak < 3 * 1024 * 1024, f"{peak:,} bytes"


async def test_what_another_task_puts_in_meanwhile_is_not_undone_with_it(
    tx_conn: psycopg.AsyncConnection, conn: psycopg.AsyncConnection
) -> None:
    """One connection, used by several tasks at once: a batch that fails half-way takes only its own jobs back."""
    queue = Queue()

    @queue.task(name="task")
    async def task(number: int) -> None: ...

    def fails() -> Iterator[Any]:
        for number in range(5_000):
            yield task.args(number)
        raise RuntimeError("half-way")

    kept: list[int] = []

    async def bad() -> None:
        with pytest.raises(RuntimeError, match="half-way"):
            await task.defer_many(tx_conn, fails())

    async def good() -> None:
        kept.extend(await task.defer_many(tx_conn, [task.args(number) for number in range(5_000)]))

    async def single() -> None:
        kept.append((await task.defer(tx_conn, 1)).id)

    async with anyio.create_task_group() as group:
        group.start_soon(bad)
        group.start_soon(good)
        for _ in range(20):
            group.start_soon(single)
    await tx_conn.commit()
    cursor = await conn.execute("select array_agg(id order by id) from asyncq.jobs")
    assert await cursor.fetchone() == (sorted(kept),)
    assert len(kept) == 5_020


# --- What the text of a batch goes through ----------------------------------------------------------------------------

ODD_TEXTS = [
    "",
    "back\\slash \\n \\\\.",
    "line\nbreak\r\n and\ttab",
    "'quotes' \"double\" $$dollar$$",
    "{curly},[square],NULL,\\N",
    "%s %(args)s %%",
    "\x01\x1e\x1f\x7f\x80\u2028",
    "\N{GRINNING FACE} \N{LATIN SMALL LETTER U WITH DIAERESIS}",
    "\N{NO-BREAK SPACE}\N{ZERO WIDTH NO-BREAK SPACE}",
]


@pytest.mark.parametrize("many", [1, BATCH_ITEMS // 1_000, BATCH_ITEMS // 5])
async def test_any_text_arrives_as_it_is(conn: Connection, many: int) -> None:
    wanted = ODD_TEXTS * many
    await number.defer_many(conn, [number.args(n, text) for n, text in enumerate(wanted)])
    found = await rows(conn, "select args->>'text' from asyncq.jobs order by id")
    assert [row[0] for row in found] == wanted


async def test_args_that_somebody_else_wrote_may_have_line_breaks(conn: Connection) -> None:
    calls: list[Any] = [TaskArgs("number", json.dumps({"n": n}, indent=2)) for n in range(3)]
    assert await stored(conn, await number.defer_many(conn, calls)) == [0, 1, 2]


@pytest.mark.parametrize("before", [0, 1, BATCH_ITEMS, 3 * BATCH_ITEMS])
async def test_what_the_server_refuses_is_the_servers_own_error_and_undoes_all(
    tx_conn: Connection, before: int
) -> None:
    def calls() -> Iterator[Any]:
        for n in range(before):
            yield number.args(n)
        yield TaskArgs("number", "{broken")
        for n in range(BATCH_ITEMS):
            yield number.args(n)

    await number.defer_many(tx_conn, [number.args(1)])
    with pytest.raises(errors.InvalidTextRepresentation):
        await number.defer_many(tx_conn, calls())
    assert await count(tx_conn) == 1


async def test_the_calls_own_error_wins_over_that_of_the_statement_under_way(tx_conn: Connection) -> None:
    def calls() -> Iterator[Any]:
        yield TaskArgs("number", "{broken")
        for n in range(BATCH_ITEMS):
            yield number.args(n)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await number.defer_many(tx_conn, calls())
    assert await count(tx_conn) == 0


# --- Others at work ---------------------------------------------------------------------------------------------------


async def test_ids_are_in_order_whoever_else_puts_jobs_in(conn: Connection, dsn: str) -> None:
    found: dict[int, list[int]] = {}

    async def put(writer: int) -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as own:
            found[writer] = await number.defer_many(own, (number.args(n, str(writer)) for n in range(5_000)))

    async with anyio.create_task_group() as group:
        for writer in range(4):
            group.start_soon(put, writer)
    for ids in found.values():
        assert ids == sorted(set(ids))
        assert await stored(conn, ids) == list(range(5_000))
    assert len({each for ids in found.values() for each in ids}) == await count(conn) == 20_000


async def test_others_on_the_event_loop_have_their_turn_while_many_are_read(conn: Connection) -> None:
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    seen: list[int] = []

    def calls() -> Iterator[Any]:
        for n in range(BATCH_ITEMS):
            seen.append(turns)
            yield number.args(n)

    async with anyio.create_task_group() as group:
        group.start_soon(other_work)
        await number.defer_many(conn, calls())
        group.cancel_scope.cancel()
    assert len(set(seen)) >= 10


async def test_the_next_batch_is_read_while_the_server_is_at_work(
    conn: Connection, tx_conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncq.task.BATCH_ITEMS", 100)
    await conn.execute("create table reached (n int)")
    blocked = anyio.Event()

    def calls() -> Iterator[Any]:
        for n in range(200):
            if n == 199:
                blocked.set()
            yield number.args(n)

    await conn.execute("begin")
    await conn.execute("lock asyncq.jobs in share mode")
    async with anyio.create_task_group() as group:
        group.start_soon(number.defer_many, tx_conn, calls())
        # The first batch waits for the lock, and the second is read all the same.
        with anyio.fail_after(10):
            await blocked.wait()
        await conn.execute("commit")
    await tx_conn.commit()
    assert await count(conn) == 200


async def test_a_role_needs_no_more_than_to_insert_and_to_read(conn: Connection, dsn: str) -> None:
    await conn.execute("drop role if exists asyncq_test_writer")
    await conn.execute("create role asyncq_test_writer")
    try:
        await conn.execute("grant usage on schema asyncq to asyncq_test_writer")
        await conn.execute("grant insert, select on asyncq.jobs to asyncq_test_writer")
        await conn.execute("alter table asyncq.jobs enable row level security")
        await conn.execute("create policy all_of_them on asyncq.jobs using (true)")
        async with await psycopg.AsyncConnection.connect(dsn) as caller:
            await caller.execute("set role asyncq_test_writer")
            await number.defer(caller, 1)
            assert len(await number.defer_many(caller, [number.args(n) for n in range(2)])) == 2
            assert len(await number.defer_many(caller, [number.args(n) for n in range(BATCH_ITEMS + 1)])) > BATCH_ITEMS
        assert await count(conn) == BATCH_ITEMS + 4
    finally:
        await conn.execute("drop owned by asyncq_test_writer")
        await conn.execute("drop role asyncq_test_writer")


# --- Cancelled half-way -----------------------------------------------------------------------------------------------


@pytest.fixture
async def locked(conn: Connection) -> AsyncGenerator[Connection]:
    """A connection that keeps everybody from putting jobs in."""
    await conn.execute("begin")
    await conn.execute("lock asyncq.jobs in share mode")
    yield conn
    await conn.execute("commit")


WAITING = "select count(*) from pg_locks where not granted and relation = 'asyncq.jobs'::regclass"


@pytest.mark.parametrize("many", [1, BATCH_ITEMS, BATCH_ITEMS + 1, 3 * BATCH_ITEMS])
@pytest.mark.parametrize("autocommit", [False, True])
async def test_a_task_that_is_cancelled_leaves_nothing_and_a_usable_connection(
    locked: Connection, dsn: str, many: int, *, autocommit: bool
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit) as caller:
        async with caller.transaction():
            await caller.execute("create table orders (id int)")
        putting = asyncio.create_task(number.defer_many(caller, (number.args(n) for n in range(many))))
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as watching:
            await eventually(lambda: value(watching, WAITING), describe="the statement waits for the lock")
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        if not autocommit:
            # As psycopg does it for a single statement, which leaves an aborted transaction to its caller.
            await caller.rollback()
        assert caller.info.transaction_status == TransactionStatus.IDLE
        assert await count(caller) == 0
        await locked.execute("commit")
        assert len(await number.defer_many(caller, [number.args(1)])) == 1


@pytest.mark.parametrize("autocommit", [False, True])
async def test_a_cancelled_scope_leaves_nothing(locked: Connection, dsn: str, *, autocommit: bool) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit) as caller:
        with anyio.move_on_after(0.3) as scope:
            await number.defer_many(caller, (number.args(n) for n in range(3 * BATCH_ITEMS)))
        assert scope.cancelled_caught
    await locked.execute("commit")
    assert await count(locked) == 0


async def test_cancelled_while_the_calls_are_read_leaves_nothing_and_a_usable_connection(tx_conn: Connection) -> None:
    reading = asyncio.Event()

    def calls() -> Iterator[Any]:
        for n in range(100 * BATCH_ITEMS):
            if n > BATCH_ITEMS + 200:
                reading.set()
            yield number.args(n)

    await number.defer_many(tx_conn, [number.args(1)])
    putting = asyncio.create_task(number.defer_many(tx_conn, calls()))
    await reading.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await count(tx_conn) == 1
