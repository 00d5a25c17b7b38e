"""`asyncq.defer(…)`: putting a job in from any language, within the calling transaction."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import errors

from asyncq.db.connection import Session
from asyncq.db.migrate import migrate
from tests.servers import majors
from tests.sql.rows import claim, count, insert, job, notifications, value

Connection = psycopg.AsyncConnection


async def test_a_name_alone_makes_a_job_like_any_other(conn: Connection) -> None:
    job_id = await value(conn, "select asyncq.defer('app.tasks.send')")
    by_hand = await insert(conn, queue="default", task="app.tasks.send")
    row, other = await job(conn, job_id), await job(conn, by_hand)
    assert row is not None
    assert other is not None
    own = ("id", "created_at", "run_at")
    assert {k: v for k, v in row.items() if k not in own} == {k: v for k, v in other.items() if k not in own}
    assert timedelta(0) <= row["run_at"] - row["created_at"] < timedelta(seconds=0.5)


async def test_arguments_by_name_in_any_order(session: Session, conn: Connection) -> None:
    job_id = await value(
        conn,
        """
        select asyncq.defer(
            lease_seconds => 2.5, max_attempts => 3, priority => -7, run_at => '2024-01-01 00:00+00',
            queue => 'emails', args => '{"user_id": 7, "text": "ü"}', task => 'app.send'
        )
        """,
    )
    row = await job(conn, job_id)
    assert row is not None
    assert (row["queue"], row["task"], row["args"]) == ("emails", "app.send", {"user_id": 7, "text": "ü"})
    assert (row["priority"], row["max_attempts"], row["lease_seconds"]) == (-7, 3, 2.5)
    assert row["run_at"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert await claim(session, {"emails": 1}, tasks=["app.send"]) == [job_id]


async def test_a_run_at_of_null_is_the_statements_time(tx_conn: Connection) -> None:
    await tx_conn.execute("select pg_sleep(0.05)")
    job_id = await value(tx_conn, "select asyncq.defer('t', run_at => null)")
    row = await job(tx_conn, job_id)
    assert row is not None
    assert timedelta(0) <= row["run_at"] - row["created_at"] < timedelta(seconds=0.5)
    assert row["run_at"] - await value(tx_conn, "select now()") >= timedelta(seconds=0.05)


async def test_the_job_belongs_to_the_transaction(conn: Connection, tx_conn: Connection) -> None:
    await tx_conn.execute("select asyncq.defer('t')")
    assert await count(conn) == 0
    await tx_conn.rollback()
    assert await count(conn) == 0
    await tx_conn.execute("select asyncq.defer('t')")
    await tx_conn.commit()
    assert await count(conn) == 1


async def test_one_call_for_each_row_of_a_query(conn: Connection) -> None:
    await conn.execute(
        "select asyncq.defer('t', jsonb_build_object('n', n), priority => n) from generate_series(1, 5) n"
    )
    assert await value(conn, "select array_agg((args->>'n')::int order by priority) from asyncq.jobs") == [
        1,
        2,
        3,
        4,
        5,
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ("null", errors.NotNullViolation, "task"),
        ("''", errors.CheckViolation, "name_has_length"),
        (r"E'a\nb'", errors.CheckViolation, "name_is_printable"),
        ("repeat('x', 129)", errors.CheckViolation, "name_has_length"),
        ("'t', queue => null", errors.NotNullViolation, "queue"),
        ("'t', queue => ''", errors.CheckViolation, "name_has_length"),
        ("'t', args => null", errors.InvalidParameterValue, "args"),
        ("'t', args => '[1]'", errors.InvalidParameterValue, "args"),
        ("'t', args => '1'", errors.InvalidParameterValue, "args"),
        ("'t', args => 'null'", errors.InvalidParameterValue, "args"),
        ("'t', args => '\"{}\"'", errors.InvalidParameterValue, "args"),
        ("'t', priority => 32768", errors.NumericValueOutOfRange, "priority"),
        ("'t', priority => -32769", errors.NumericValueOutOfRange, "priority"),
        ("'t', priority => null", errors.NumericValueOutOfRange, "priority"),
        ("'t', max_attempts => 0", errors.CheckViolation, "jobs_attempts_counted"),
        ("'t', max_attempts => null", errors.NotNullViolation, "max_attempts"),
        ("'t', lease_seconds => 0.4", errors.CheckViolation, "jobs_lease_bounded"),
        ("'t', lease_seconds => 'nan'", errors.CheckViolation, "jobs_lease_bounded"),
    ],
)
async def test_what_cannot_be_run_is_refused(
    refusing: Connection, arguments: str, error: type[psycopg.Error], says: str
) -> None:
    with pytest.raises(error, match=says):
        await refusing.execute(f"select asyncq.defer({arguments})".encode())


@majors(12, 18)
@pytest.mark.parametrize("path", ["shadow, pg_catalog, asyncq", "shadow, asyncq", "", "pg_catalog"])
async def test_look_alikes_in_the_search_path_are_not_used(conn: Connection, listening: Connection, path: str) -> None:
    await conn.execute("""
        create schema shadow;
        create table shadow.jobs (like asyncq.jobs);
        create function shadow.clock_timestamp() returns timestamptz
            language sql as $$ select '1999-01-01'::timestamptz $$;
        create function shadow.pg_notify(text, text) returns void language sql as $$ select $$;
        create function shadow.jsonb_typeof(jsonb) returns text language sql as $$ select 'array'::text $$;
        create function shadow.defer(text) returns bigint language sql as $$ select -1::bigint $$;
    """)
    await conn.execute("select set_config('search_path', %s, false)", (path,))
    job_id = await value(conn, "select asyncq.defer('t', '{}'::pg_catalog.jsonb)")
    row = await job(conn, job_id)
    assert row is not None
    assert row["run_at"] >= row["created_at"] > datetime(2024, 1, 1, tzinfo=UTC)
    assert await notifications(listening) == [("asyncq", "default")]
    # The caller's own path is as it was.
    assert await value(conn, "select pg_catalog.current_setting('search_path')") == path


async def test_a_second_schema_has_a_function_of_its_own(dsn: str, conn: Connection) -> None:
    await migrate(dsn, schema="second")
    await conn.execute("select second.defer('t')")
    assert (await count(conn), await value(conn, "select count(*) from second.jobs")) == (0, 1)
    with pytest.raises(errors.InvalidParameterValue, match="second"):
        await conn.execute("select second.defer('t', '[]')")
