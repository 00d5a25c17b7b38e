"""How a run ends: every combination of what the handler did and what it was told, and what that does to the row."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncq import Cancel, JobState, Retry, RetryPolicy, Snooze
from asyncq.failure import LONGEST
from asyncq.outcome import (
    Cancelled,
    Change,
    Completed,
    Discarded,
    Interruption,
    Outcome,
    Released,
    Retried,
    Snoozed,
    change,
    decide,
    kind_of,
)

TIMEOUT, STOP = Interruption.TIMEOUT, Interruption.STOP

POLICY = RetryPolicy(base=timedelta(seconds=5), factor=1, jitter=0, give_up_on=(PermissionError,))


def ends(
    error: BaseException | None,
    interruption: Interruption | None = None,
    *,
    attempts: int = 1,
    max_attempts: int = 3,
    policy: RetryPolicy = POLICY,
    final: bool = False,
) -> Outcome:
    return decide(
        error, interruption, attempts=attempts, max_attempts=max_attempts, policy=policy, chance=0.0, final=final
    )


LAST: dict[str, Any] = {"attempts": 3}

TABLE: dict[str, tuple[Outcome, Outcome]] = {
    "returned": (ends(None), Completed()),
    "returned, although it was told to stop": (ends(None, STOP), Completed()),
    "returned on its last attempt": (ends(None, **LAST), Completed()),
    "failed": (ends(ValueError("x")), Retried(5.0, "ValueError: x")),
    "failed on its last attempt": (ends(ValueError("x"), **LAST), Discarded("ValueError: x")),
    "failed past its last attempt": (ends(ValueError("x"), attempts=9), Discarded("ValueError: x")),
    "failed for good by its policy": (ends(PermissionError("x")), Discarded("PermissionError: x")),
    "failed for good by what it is": (ends(ValueError("x"), final=True), Discarded("ValueError: x")),
    "exited": (ends(SystemExit(3)), Retried(5.0, "SystemExit: 3")),
    "interrupted itself": (ends(KeyboardInterrupt()), Retried(5.0, "KeyboardInterrupt")),
    "cancelled by nobody": (ends(asyncio.CancelledError()), Retried(5.0, "asyncio.exceptions.CancelledError")),
    "asked for a retry": (ends(Retry(reason="busy")), Retried(5.0, "busy")),
    "asked for a retry later": (ends(Retry(timedelta(minutes=1), "busy")), Retried(60.0, "busy")),
    "asked for a retry at once": (ends(Retry(0, "busy")), Retried(0.0, "busy")),
    "asked for a retry on its last attempt": (ends(Retry(9, "busy"), **LAST), Discarded("busy")),
    "asked for a retry when told to stop": (ends(Retry(9, "busy"), STOP), Retried(9.0, "busy")),
    "snoozed": (ends(Snooze(30)), Snoozed(30.0)),
    "snoozed on its last attempt": (ends(Snooze(30), **LAST), Snoozed(30.0)),
    "snoozed when told to stop": (ends(Snooze(30), STOP), Snoozed(30.0)),
    "gave up": (ends(Cancel("gone")), Cancelled("gone")),
    "gave up without a word": (ends(Cancel()), Cancelled("cancelled by its handler")),
    "gave up when told to stop": (ends(Cancel("gone"), STOP), Cancelled("gone")),
    "cancelled by the stop": (ends(asyncio.CancelledError(), STOP), Released()),
    "answered the stop with another exception": (ends(ValueError("x"), STOP), Released()),
    "cancelled by the stop on its last attempt": (ends(asyncio.CancelledError(), STOP, **LAST), Released()),
    "a final failure while told to stop": (ends(PermissionError("x"), STOP), Released()),
}


@pytest.mark.parametrize(("outcome", "expected"), TABLE.values(), ids=TABLE)
def test_the_table(outcome: Outcome, expected: Outcome) -> None:
    assert outcome == expected


def test_a_retry_asked_for_without_a_word_says_at_least_that_it_was() -> None:
    outcome = ends(Retry(7))
    assert isinstance(outcome, Retried)
    assert outcome.delay == 7.0
    assert "retry" in outcome.error


@pytest.mark.parametrize(
    "error", [None, asyncio.CancelledError(), ValueError("x"), Retry(1), Snooze(1), Cancel("c"), PermissionError("p")]
)
def test_past_its_timeout_a_run_has_failed_whatever_the_handler_did(error: BaseException | None) -> None:
    outcome = ends(error, TIMEOUT)
    assert isinstance(outcome, Retried)
    assert outcome.delay == 5.0
    assert "TimeoutError" in outcome.error
    assert "past its timeout" in outcome.error
    assert isinstance(ends(error, TIMEOUT, attempts=3), Discarded)


def test_a_timeout_is_an_exception_that_a_policy_can_give_up_on() -> None:
    assert isinstance(ends(None, TIMEOUT, policy=RetryPolicy(give_up_on=(TimeoutError,))), Discarded)


def test_a_policy_sees_the_failure_and_the_attempts() -> None:
    seen: list[tuple[int, BaseException]] = []

    def backoff(attempts: int, error: BaseException) -> timedelta:
        seen.append((attempts, error))
        return timedelta(seconds=1)

    error = ValueError()
    ends(error, attempts=2, policy=RetryPolicy(backoff=backoff))
    assert seen == [(2, error)]


# --- Groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Snooze(30), Snoozed(30.0)),
        (Cancel("gone"), Cancelled("gone")),
        (Retry(9, "busy"), Retried(9.0, "busy")),
        (PermissionError("x"), Discarded("PermissionError: x")),
    ],
)
def test_a_group_of_one_counts_as_the_one(error: Exception, expected: Outcome) -> None:
    assert ends(ExceptionGroup("a task group's", [error])) == expected
    assert ends(ExceptionGroup("", [ExceptionGroup("", [error])])) == expected


def test_a_signal_among_others_is_a_failure_and_all_of_it_is_kept() -> None:
    outcome = ends(ExceptionGroup("several", [Retry(7), Snooze(7), Cancel("c"), ValueError("the cause")]))
    assert isinstance(outcome, Retried)
    assert outcome.delay == 5.0
    assert "ValueError: the cause" in outcome.error


def test_a_group_is_final_when_all_its_leaves_are() -> None:
    final, other = PermissionError("x"), ValueError("x")
    assert isinstance(ends(ExceptionGroup("", [final, ExceptionGroup("", [final, final])])), Discarded)
    assert isinstance(ends(ExceptionGroup("", [final, ExceptionGroup("", [final, other])])), Retried)


def test_a_cancellation_in_a_group_at_the_stop_is_an_interruption() -> None:
    group = BaseExceptionGroup("", [asyncio.CancelledError(), ValueError("x")])
    assert ends(group, STOP) == Released()
    assert isinstance(ends(group), Retried)


def test_a_group_with_an_interrupt_is_a_failed_attempt() -> None:
    outcome = ends(BaseExceptionGroup("", [KeyboardInterrupt(), ValueError("x")]))
    assert isinstance(outcome, Retried)
    assert "KeyboardInterrupt" in outcome.error


# --- It never raises --------------------------------------------------------------------------------------------------


class Unprintable:
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


class Uninitialised(Cancel):
    def __init__(self) -> None:
        pass


class RetryUninitialised(Retry):
    def __init__(self) -> None:
        pass


class SnoozeUninitialised(Snooze):
    def __init__(self) -> None:
        pass


def deep_groups() -> BaseException:
    error: Any = ValueError("innermost")
    for _ in range(5_000):
        error = ExceptionGroup("", [error, KeyError()])
    return error


def deep_single_groups() -> BaseException:
    error: Any = ValueError("innermost")
    for _ in range(5_000):
        error = ExceptionGroup("", [error])
    return error


def changed(signal: Any, **attributes: object) -> Any:
    for name, value in attributes.items():
        setattr(signal, name, value)
    return signal


anything: Any = Unprintable()

ODD: dict[str, Callable[[], BaseException]] = {
    "a reason that cannot be printed": lambda: Cancel(anything),
    "a retry's reason that cannot be printed": lambda: Retry(reason=anything),
    "a reason that is no text": lambda: changed(Cancel(), reason=None),
    "a reason with NUL": lambda: Cancel("\x00" * 100_000),
    "a retry's reason with half pairs": lambda: Retry(reason="\ud800" * 100_000),
    "a cancel that was never set up": Uninitialised,
    "a retry that was never set up": RetryUninitialised,
    "a snooze that was never set up": SnoozeUninitialised,
    "a retry's delay that is none": lambda: changed(Retry(1), delay="soon"),
    "a snooze's delay that is none": lambda: changed(Snooze(1), delay=None),
    "groups within groups": deep_groups,
    "groups of one within groups of one": deep_single_groups,
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_whatever_the_handler_raised_there_is_an_outcome_that_can_be_written(make: Callable[[], BaseException]) -> None:
    for interruption in (None, STOP, TIMEOUT):
        outcome = ends(make(), interruption)
        written = change(outcome)
        assert written.state in {*JobState}
        text = written.error or ""
        text.encode()
        assert "\x00" not in text
        assert len(text) <= LONGEST


# --- The transitions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Completed(), Change("completed", delay=None, refund=0, error=None)),
        (Retried(5.0, "e"), Change("available", delay=5.0, refund=0, error="e")),
        (Snoozed(5.0), Change("available", delay=5.0, refund=1, error=None)),
        (Released(), Change("available", delay=None, refund=1, error=None)),
        (Cancelled("r"), Change("cancelled", delay=None, refund=0, error="r")),
        (Discarded("e"), Change("discarded", delay=None, refund=0, error="e")),
    ],
)
def test_what_each_outcome_does_to_the_row(outcome: Outcome, expected: Change) -> None:
    assert change(outcome) == expected


def grouped(leaves: list[ValueError]) -> BaseException:
    return ExceptionGroup("g", leaves)


signals = st.one_of(
    st.none(),
    st.builds(ValueError, st.text()),
    st.builds(Snooze, st.integers(0, 1000)),
    st.builds(Retry, st.one_of(st.none(), st.integers(0, 1000))),
    st.builds(Cancel, st.text()),
    st.builds(asyncio.CancelledError),
    st.lists(st.builds(ValueError), min_size=1, max_size=3).map(grouped),
)


@given(
    error=signals,
    interruption=st.sampled_from([None, TIMEOUT, STOP]),
    attempts=st.integers(1, 100),
    max_attempts=st.integers(1, 100),
    final=st.booleans(),
)
def test_no_failure_is_retried_beyond_its_attempts_and_no_attempt_is_given_back_for_one(
    error: BaseException | None,
    interruption: Interruption | None,
    attempts: int,
    max_attempts: int,
    final: bool,  # noqa: FBT001
) -> None:
    outcome = ends(error, interruption, attempts=attempts, max_attempts=max_attempts, final=final)
    if isinstance(outcome, Retried):
        assert attempts < max_attempts
        assert change(outcome).refund == 0
    if isinstance(outcome, (Snoozed, Released)):
        assert interruption is not TIMEOUT
    if error is None and interruption is not TIMEOUT:
        assert outcome == Completed()


class EvilGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> tuple[Exception, ...]:
        raise RuntimeError("not even my exceptions")


@pytest.mark.parametrize(
    ("error", "interruption", "kind"),
    [
        (ValueError("x"), None, "ValueError"),
        (ExceptionGroup("x", [ExceptionGroup("y", [ValueError("z")])]), None, "ValueError"),
        (ExceptionGroup("x", [ValueError("y"), KeyError("z")]), None, "ExceptionGroup"),
        (asyncio.CancelledError(), TIMEOUT, "TimeoutError"),
        (EvilGroup("x", [ValueError("y")]), None, "EvilGroup"),
    ],
)
def test_the_kind_of_a_failure_is_the_type_of_what_was_raised(
    error: BaseException, interruption: Interruption | None, kind: str
) -> None:
    assert kind_of(error, interruption) == kind
