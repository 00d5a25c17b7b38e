"""Many jobs at once: all or none, their ids in order, and memory that does not grow with their number."""

import tracemalloc
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import psycopg
import pytest
from psycopg.pq import TransactionStatus

from asyncq import InvalidArgsError, Queue
from asyncq.task import BATCH_CHARACTERS, BATCH_ITEMS
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
