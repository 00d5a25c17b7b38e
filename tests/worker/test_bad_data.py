"""Data that nobody should put in, put in all the same: it is refused, or concerns its own row alone."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import psycopg
import pytest
from psycopg import errors, sql

from asyncq import InvalidArgsError, Queue
from tests.eventually import eventually
from tests.sql import rows
from tests.worker.inside import running_worker

Connection = psycopg.AsyncConnection


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


class UnprintableError(Exception):
    """Raised with nothing but raising methods."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def nested_list(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


queue = Queue("q", max_attempts=1)


@queue.task(name="anything")
async def anything(value: Any) -> None: ...


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("a\0b", "NUL"),
        ({"a\0b": 1}, "NUL"),
        ("\ud800", "surrogate"),
        (math.nan, "NaN"),
        ([math.inf], "NaN"),
        (nested_list(5000), "deep|nest|recursi"),
        ("x" * 300_000_000, "300,000,012 bytes"),
        (datetime.max.replace(tzinfo=UTC), None),
    ],
    ids=["NUL", "NUL in a key", "surrogate", "NaN", "infinity", "depth 5000", "300 MB", "the last moment"],
)
async def test_python_is_told_what_is_wrong_and_its_transaction_lives(
    conn: Connection, tx_conn: Connection, value: Any, says: str | None
) -> None:
    if says is None:
        await anything.defer(tx_conn, str(value))
        await anything.options(run_at=value).defer(tx_conn, 1)
    else:
        with pytest.raises(InvalidArgsError, match=says):
            await anything.defer(tx_conn, value)
        with pytest.raises(InvalidArgsError, match=says):
            await anything.defer_many(tx_conn, [anything.args(1), anything.args(value)])
    await tx_conn.execute("select 1")
    await tx_conn.commit()
    assert await rows.count(conn) == (0 if says else 2)


@pytest.mark.parametrize(
    "args",
    [
        r'{"value": "\u0000"}',
        r'{"value": "\ud800"}',
        '{"value": NaN}',
        '{"value": Infinity}',
        "{",
        '{"value": 1e999999}',
    ],
)
async def test_sql_refuses_what_is_no_json(conn: Connection, args: str) -> None:
    for statement in ("select asyncq.defer('t', args => {})", "insert into asyncq.jobs (task, args) values ('t', {})"):
        with pytest.raises(errors.DataError):
            await conn.execute(sql.SQL(statement).format(sql.Literal(args)))
    assert await rows.count(conn) == 0


async def test_sql_refuses_300_megabytes(conn: Connection) -> None:
    """In defer PostgreSQL's own limit comes first, which a plain INSERT has too."""
    huge = "jsonb_build_object('value', repeat('x', 300000000))"
    for statement in ("select asyncq.defer('t', args => {})", "insert into asyncq.jobs (task, args) values ('t', {})"):
        with pytest.raises(errors.ProgramLimitExceeded):
            await conn.execute(sql.SQL(statement).format(sql.SQL(huge)))
    assert await rows.count(conn) == 0


async def test_bad_rows_among_good_ones_are_discarded_each_with_its_reason(dsn: str, conn: Connection) -> None:
    """What jsonb takes and handlers cannot be given, or cannot bear."""
    queue = Queue("q", max_attempts=1)
    ran: list[int] = []

    @queue.task(name="number")
    async def number(value: int) -> None:
        ran.append(value)

    @queue.task(name="real")
    async def real(value: float) -> None:
        ran.append(-1)

    @queue.task(name="any")
    async def any_value(value: Any) -> None:
        ran.append(-2)

    @queue.task(name="raises")
    async def raises() -> NoReturn:
        class Nameless(type):
            @property
            def __name__(cls) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
                raise RuntimeError("no name")

        class NamelessError(UnprintableError, metaclass=Nameless):
            pass

        raise NamelessError

    bad = {
        "too many digits": ("number", '{"value": 1e5000}', "number out of range"),
        "no float": ("real", '{"value": 1e5000}', "number out of range"),
        "depth 5000": ("any", f'{{"value": {deep(5000)}}}', "recursion"),
        "no object": ("number", f"[{deep(50)}]", "object"),
        "another type": ("number", '{"value": "\\u0001 \\u2028 1"}', "value"),
        "missing": ("number", "{}", "value"),
        "raises": ("raises", "{}", "NamelessError"),
    }
    for good, (task, args, _) in enumerate(bad.values()):
        await rows.insert(conn, task="number", args=f'{{"value": {good}}}', max_attempts=1)
        await rows.insert(conn, task=task, args=args, max_attempts=1)
    huge = sql.SQL("jsonb_build_object('value', repeat('x', 60000000))")
    await rows.insert(conn, task="any", args=huge, max_attempts=1)
    await rows.insert(conn, task="number", args='{"value": 100}', run_at="-infinity", max_attempts=1)
    never = await rows.insert(conn, task="number", args='{"value": 101}', run_at="infinity", max_attempts=1)
    async with running_worker(queue, dsn):

        async def over() -> bool:
            return await rows.value(conn, "select count(*) from asyncq.jobs where state <> 'discarded'") == 1

        await eventually(over, 30, describe="all but the one for never have ended")
    assert sorted(ran) == [*range(len(bad)), 100]
    assert await rows.ids(conn, "available") == [never]
    found = await rows.rows(conn, "select last_error, attempts from asyncq.jobs where state = 'discarded' order by id")
    for (error, attempts), says in zip(
        found, [*(says for _, _, says in bad.values()), "60,000,013 bytes"], strict=True
    ):
        assert attempts == 1
        assert says in error
        assert len(error) < 20_000


async def test_times_at_the_ends_of_what_there_is_do_not_hurt_dead_letters(conn: Connection) -> None:
    queue = Queue("q", retention=timedelta(days=1))
    for when in ("infinity", "-infinity", "294276-01-01"):
        await rows.insert(conn, state="discarded", finished_at=when, run_at=when, attempts=1)
    assert len(await queue.discarded(conn)) == 3
    assert len(await queue.replay(conn)) == 3
