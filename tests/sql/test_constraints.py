"""What the table itself refuses, whoever writes to it."""

from datetime import timedelta

import psycopg
import pytest
from psycopg import errors, sql

from tests.sql.rows import count, insert, job, running

Connection = psycopg.AsyncConnection

NOW = sql.SQL("now()")

HELD = {"state": "running", "lease_token": 1, "locked_by": "w", "leased_until": NOW, "attempted_at": NOW}


@pytest.mark.parametrize(
    ("constraint", "columns"),
    [
        pytest.param("jobs_state_known", {"state": "scheduled"}, id="a state that is none"),
        pytest.param("jobs_state_known", {"state": "completed"}, id="success, which deletes the row"),
        pytest.param("name_has_length", {"queue": ""}, id="no queue"),
        pytest.param("name_has_length", {"queue": "x" * 129}, id="a queue's name too long"),
        pytest.param("name_is_printable", {"queue": "a\nb"}, id="a line break in a queue's name"),
        pytest.param("name_is_printable", {"queue": "a\x01"}, id="a control character in a queue's name"),
        pytest.param("name_is_printable", {"queue": "\x7f"}, id="delete in a queue's name"),
        pytest.param("name_is_printable", {"queue": "\x9b31m"}, id="an eight-bit control character in a queue's name"),
        pytest.param("name_has_length", {"task": ""}, id="no task"),
        pytest.param("name_has_length", {"task": "\N{GRINNING FACE}" * 129}, id="a task's name too long"),
        pytest.param("name_is_printable", {"task": "a\x1b[31m"}, id="an escape in a task's name"),
        pytest.param("name_is_printable", {"task": "\x85"}, id="an eight-bit control character in a task's name"),
        pytest.param("jobs_attempts_counted", {"attempts": -1}, id="fewer than no attempts"),
        pytest.param("jobs_attempts_counted", {"max_attempts": 0}, id="no attempts allowed"),
        pytest.param("jobs_lease_bounded", {"lease_seconds": 0.49}, id="too short a lease"),
        pytest.param("jobs_lease_bounded", {"lease_seconds": 604_801}, id="too long a lease"),
        pytest.param("jobs_lease_bounded", {"lease_seconds": float("nan")}, id="a lease that is no number"),
        pytest.param("jobs_lease_bounded", {"lease_seconds": float("inf")}, id="a lease without an end"),
        pytest.param("jobs_running_has_holder", {**HELD, "lease_token": None}, id="running without a token"),
        pytest.param("jobs_running_has_holder", {**HELD, "leased_until": None}, id="running without a lease"),
        pytest.param("jobs_running_has_holder", {**HELD, "locked_by": None}, id="running without a holder"),
        pytest.param("jobs_running_has_holder", {**HELD, "attempted_at": None}, id="running without a beginning"),
        pytest.param("jobs_running_has_holder", {"lease_token": 1}, id="waiting with a token"),
        pytest.param("jobs_running_has_holder", {"leased_until": NOW}, id="waiting with a lease"),
        pytest.param("jobs_running_has_holder", {"locked_by": "w"}, id="waiting with a holder"),
        pytest.param("jobs_ended_has_time", {"state": "discarded"}, id="discarded at no time"),
        pytest.param("jobs_ended_has_time", {"state": "cancelled"}, id="cancelled at no time"),
        pytest.param("jobs_ended_has_time", {"finished_at": NOW}, id="waiting and ended"),
        pytest.param("jobs_ended_has_time", {**HELD, "finished_at": NOW}, id="running and ended"),
    ],
)
async def test_a_row_that_cannot_be_is_refused(
    refusing: Connection, constraint: str, columns: dict[str, object]
) -> None:
    with pytest.raises(errors.CheckViolation) as raised:
        await insert(refusing, **columns)
    assert raised.value.diag.constraint_name == constraint


@pytest.mark.parametrize(
    "column", ["queue", "task", "args", "state", "priority", "run_at", "attempts", "max_attempts", "lease_seconds"]
)
async def test_a_row_lacks_nothing(refusing: Connection, column: str) -> None:
    with pytest.raises(errors.NotNullViolation):
        await insert(refusing, **{column: None})


@pytest.mark.parametrize("priority", [-32_769, 32_768])
async def test_a_priority_out_of_range_is_refused(refusing: Connection, priority: int) -> None:
    with pytest.raises(errors.NumericValueOutOfRange):
        await insert(refusing, priority=priority)


async def test_an_id_is_given_by_the_table(refusing: Connection) -> None:
    with pytest.raises(errors.GeneratedAlways):
        await insert(refusing, id=1)


async def test_the_ends_of_every_range_are_allowed(conn: Connection) -> None:
    for columns in (
        {"queue": "x", "task": "y"},
        {"queue": "\N{GRINNING FACE}" * 128, "task": "'\"\\; -- %s $1 \u202e" * 7},
        {"priority": -32_768, "lease_seconds": 0.5, "max_attempts": 1},
        {"priority": 32_767, "lease_seconds": 604_800, "max_attempts": 2**31 - 1, "attempts": 2**31 - 1},
        {**HELD},
        {"state": "discarded", "finished_at": NOW},
        {"state": "cancelled", "finished_at": NOW},
    ):
        await insert(conn, **columns)
    assert await count(conn) == 7


async def test_an_insert_of_the_names_alone_is_a_job(conn: Connection) -> None:
    job_id = await insert(conn)
    row = await job(conn, job_id)
    assert row is not None
    assert timedelta(0) <= row["run_at"] - row["created_at"] < timedelta(seconds=0.2)
    assert {name: row[name] for name in row if name not in ("id", "created_at", "run_at")} == {
        "queue": "q",
        "task": "t",
        "args": {},
        "priority": 0,
        "state": "available",
        "attempts": 0,
        "max_attempts": 10,
        "lease_seconds": 60.0,
        "locked_by": None,
        "leased_until": None,
        "lease_token": None,
        "last_error": None,
        "attempted_at": None,
        "finished_at": None,
        "headers": None,
    }


async def test_an_update_by_hand_is_held_to_the_same_rules(conn: Connection) -> None:
    job_id = await running(conn, 1)
    with pytest.raises(errors.CheckViolation):
        await conn.execute("update asyncq.jobs set state = 'available' where id = %s", (job_id,))
    with pytest.raises(errors.CheckViolation):
        await conn.execute("update asyncq.jobs set state = 'discarded', finished_at = now() where id = %s", (job_id,))
