"""How loops wait: no wake-up is lost, and trouble with the database is waited out where that is of use."""

import logging

import anyio
import psycopg
import pytest
from psycopg import errors

from asyncq.worker.trouble import PERMANENT_SECONDS, Trouble, one_line
from asyncq.worker.wakeup import Wakeup, jittered


async def test_woken_before_the_sleep_it_does_not_sleep() -> None:
    wakeup = Wakeup()
    wakeup.set()
    with anyio.fail_after(5):
        await wakeup.sleep(3600)


async def test_woken_twice_it_wakes_once() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    await wakeup.sleep(3600)
    with anyio.move_on_after(0.05) as scope:
        await wakeup.sleep()
    assert scope.cancelled_caught


async def test_woken_while_it_sleeps() -> None:
    wakeup = Wakeup()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(wakeup.sleep)
            await anyio.lowlevel.checkpoint()
            wakeup.set()


async def test_not_woken_it_sleeps_for_its_time() -> None:
    began = anyio.current_time()
    await Wakeup().sleep(0.05)
    assert 0.045 <= anyio.current_time() - began < 1


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_no_time_is_no_sleep(seconds: float) -> None:
    with anyio.fail_after(1):
        await Wakeup().sleep(seconds)


def test_jitter_takes_at_most_half_off_and_adds_nothing() -> None:
    values = [jittered(100.0) for _ in range(200)]
    assert all(50.0 <= value <= 100.0 for value in values)
    assert len(set(values)) > 100


TRANSIENT: list[BaseException] = [
    psycopg.OperationalError("the connection is lost"),
    errors.AdminShutdown("terminating connection due to administrator command"),
    errors.CannotConnectNow("the database system is starting up"),
    errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction"),
    errors.SerializationFailure("could not serialize access"),
    errors.DeadlockDetected("deadlock detected"),
    errors.LockNotAvailable("canceling statement due to lock timeout"),
    errors.QueryCanceled("canceling statement due to statement timeout"),
    errors.DiskFull("no space left on device"),
    OSError("connection refused"),
    TimeoutError(),
]

PERMANENT: list[BaseException] = [
    errors.UndefinedTable('relation "asyncq.jobs" does not exist'),
    errors.UndefinedColumn("column does not exist"),
    errors.InsufficientPrivilege("permission denied for table jobs"),
    errors.SyntaxError("syntax error"),
    errors.InvalidSchemaName("schema does not exist"),
    errors.InvalidCatalogName('database "x" does not exist'),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=lambda error: type(error).__name__)
def test_what_passes_is_waited_out_for_ever(error: BaseException) -> None:
    trouble, now = Trouble("testing"), 0.0
    for _ in range(1_000):
        wait = trouble.met(error, now)
        assert 0.0 < wait <= 5.0
        now += wait
    assert now > PERMANENT_SECONDS


@pytest.mark.parametrize("error", PERMANENT, ids=lambda error: type(error).__name__)
def test_what_does_not_pass_is_raised_after_a_minute(error: BaseException) -> None:
    trouble = Trouble("testing")
    for now in range(1_000, 1_001 + int(PERMANENT_SECONDS)):
        trouble.met(error, float(now))
    with pytest.raises(type(error)) as raised:
        trouble.met(error, 1_000.1 + PERMANENT_SECONDS)
    assert raised.value is error


@pytest.mark.parametrize("between", ["another failure", "a success"])
def test_the_minute_starts_again_when_something_else_happens(between: str) -> None:
    trouble = Trouble("testing")
    trouble.met(PERMANENT[0], 0.0)
    if between == "a success":
        trouble.over()
    else:
        trouble.met(TRANSIENT[0], 30.0)
    trouble.met(PERMANENT[0], 59.0)
    trouble.met(PERMANENT[0], 118.0)
    with pytest.raises(errors.UndefinedTable):
        trouble.met(PERMANENT[0], 120.0)


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), AssertionError(), KeyError("x"), FileNotFoundError("a statement's")]
)
def test_what_is_no_trouble_of_the_database_is_raised_at_once(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        Trouble("testing").met(error, 0.0)
    assert raised.value is error


def test_waits_grow_and_begin_anew_after_a_success() -> None:
    trouble = Trouble("testing", longest_wait=2.0)
    error = TRANSIENT[0]
    waits = [trouble.met(error, 0.0) for _ in range(200)]
    assert waits[0] <= 0.1
    assert all(1.0 <= wait <= 2.0 for wait in waits[10:])
    trouble.over()
    assert trouble.met(error, 0.0) <= 0.1


def test_an_outage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble("claiming")
    with caplog.at_level(logging.INFO, "asyncq.worker"):
        for _ in range(50):
            trouble.met(psycopg.OperationalError("gone\nand more lines"), 0.0)
        trouble.over()
        trouble.over()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "claiming" in caplog.text
    assert "gone" in caplog.text
    assert "and more lines" not in caplog.text


def test_one_line_of_any_error() -> None:
    assert one_line(ValueError("first\nsecond")) == "first"
    assert one_line(ValueError("  \n first \n second")) == "first "
    assert one_line(TimeoutError()) == "TimeoutError"
    assert one_line(ValueError("\n")) == "ValueError"
