"""A job is a row of your own transaction: it is there if, and only if, you commit."""

import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import psycopg
import pytest

from asyncq import InvalidArgsError, Queue
from tests.fundamentals.conftest import Work

Connection = psycopg.AsyncConnection

emails = Queue("emails")

sent: list[tuple[int, str]] = []


@emails.task
async def send_welcome(user_id: int, template: str = "plain") -> None:
    sent.append((user_id, template))


@pytest.fixture(autouse=True)
def forget() -> None:
    sent.clear()


async def test_a_job_runs_once_its_transaction_has_committed(tx_conn: Connection, work: Work) -> None:
    await send_welcome.defer(tx_conn, 7)
    await work(emails)
    assert sent == []

    await tx_conn.commit()
    await work(emails)
    assert sent == [(7, "plain")]


async def test_a_job_of_a_rolled_back_transaction_never_was(tx_conn: Connection, work: Work) -> None:
    await send_welcome.defer(tx_conn, 7)
    await tx_conn.rollback()
    await work(emails)
    assert sent == []


async def test_the_business_row_and_the_job_share_one_fate(conn: Connection, work: Work) -> None:
    await conn.execute("create table users (id int primary key)")

    async def register(user_id: int) -> None:
        async with conn.transaction():
            await send_welcome.defer(conn, user_id)
            await conn.execute("insert into users values (%s)", (user_id,))

    await register(1)
    with pytest.raises(psycopg.errors.UniqueViolation):
        await register(1)
    await work(emails)
    assert sent == [(1, "plain")]


async def test_on_an_autocommit_connection_a_job_is_there_at_once(conn: Connection, work: Work) -> None:
    deferred = await send_welcome.defer(conn, 7, template="tips")
    assert deferred.id > 0
    assert deferred.queue == "emails"
    await work(emails)
    assert sent == [(7, "tips")]


async def test_many_jobs_go_in_with_one_call_in_their_order(conn: Connection, work: Work) -> None:
    ids = await send_welcome.defer_many(conn, [send_welcome.args(n) for n in range(5)])
    assert ids == sorted(ids)
    await work(emails, concurrency=1)
    assert sent == [(n, "plain") for n in range(5)]


async def test_many_jobs_are_all_or_none(conn: Connection, work: Work) -> None:
    def calls() -> Iterator[Any]:
        yield send_welcome.args(1)
        raise ConnectionError("where the users came from")

    with pytest.raises(ConnectionError):
        await send_welcome.defer_many(conn, calls())
    await work(emails)
    assert sent == []


async def test_wrong_arguments_are_refused_and_the_transaction_goes_on(tx_conn: Connection, work: Work) -> None:
    with pytest.raises(InvalidArgsError, match="user_id"):
        await send_welcome.defer(tx_conn, "seven")  # type: ignore[arg-type]
    await send_welcome.defer(tx_conn, 7)
    await tx_conn.commit()
    await work(emails)
    assert sent == [(7, "plain")]


async def test_a_task_is_still_the_function_it_was() -> None:
    await send_welcome(7, template="in a unit test")
    assert sent == [(7, "in a unit test")]


async def test_sql_from_anywhere_can_put_a_job_in(conn: Connection, work: Work) -> None:
    await conn.execute(
        "select asyncq.defer(%s, args => %s, queue => 'emails')",
        (send_welcome.name, '{"user_id": 8, "template": "sql"}'),
    )
    await work(emails)
    assert sent == [(8, "sql")]


def logged(handler: Callable[[int], Coroutine[Any, Any, None]]) -> Callable[[int], Any]:
    """A decorator as many are: a plain function round an async one."""

    @functools.wraps(handler)
    def wrapper(user_id: int) -> Any:
        return handler(user_id)

    return wrapper


@emails.task(name="wrapped")
@logged
async def wrapped(user_id: int) -> None:
    sent.append((user_id, "wrapped"))


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_handler_behind_a_plain_function_runs_or_fails_but_is_not_lost(conn: Connection, work: Work) -> None:
    deferred = await wrapped.defer(conn, 7)
    await work(emails)
    cursor = await conn.execute("select last_error from asyncq.jobs where id = %s", (deferred.id,))
    row = await cursor.fetchone()
    if row is None:
        assert sent == [(7, "wrapped")]
    else:
        assert row[0] is not None


async def test_success_leaves_no_row(conn: Connection, work: Work) -> None:
    await send_welcome.defer(conn, 7)
    await work(emails)
    cursor = await conn.execute("select count(*) from asyncq.jobs")
    assert await cursor.fetchone() == (0,)
