"""A job is a row of your own transaction: it is there if, and only if, you commit."""

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
    with pytest.raises(psycopg.errors.UniqueViolation):
        async with conn.transaction():
            await conn.execute("insert into users values (1)")
            await send_welcome.defer(conn, 1)
            await conn.execute("insert into users values (1)")
    await work(emails)
    assert sent == []


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
    def calls():  # type: ignore[no-untyped-def]  # noqa: ANN202
        yield send_welcome.args(1)
        raise ConnectionError("where the users came from")

    with pytest.raises(ConnectionError):
        await send_welcome.defer_many(conn, calls())
    await work(emails)
    assert sent == []


async def test_wrong_arguments_are_refused_and_the_transaction_goes_on(tx_conn: Connection, work: Work) -> None:
    with pytest.raises(InvalidArgsError, match="user_id"):
        await send_welcome.defer(tx_conn, "seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await send_welcome.defer(tx_conn, 7)
    await tx_conn.commit()
    await work(emails)
    assert sent == [(7, "plain")]


async def test_a_task_is_still_the_function_it_was() -> None:
    await send_welcome(7, template="in a unit test")
    assert sent == [(7, "in a unit test")]


async def test_sql_from_anywhere_can_put_a_job_in(conn: Connection, work: Work) -> None:
    await conn.execute(
        "select asyncq.defer(%s, args => %s, queue => 'emails')", (send_welcome.name, '{"user_id": 8, "template": "sql"}')
    )
    await work(emails)
    assert sent == [(8, "sql")]


async def test_success_leaves_no_row(conn: Connection, work: Work) -> None:
    await send_welcome.defer(conn, 7)
    await work(emails)
    cursor = await conn.execute("select count(*) from asyncq.jobs")
    assert await cursor.fetchone() == (0,)
