"""Backoff as arithmetic: finite, never negative, capped, and robust against what users plug in."""

import logging
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncq import ConfigurationError, RetryPolicy
from asyncq.errors import LONGEST_DELAY

CENTURY = LONGEST_DELAY.total_seconds()

MANY = [1, 2, 15, 16, 46, 47, 63, 64, 1023, 1024, 1025, 32_767, 99_999, 2**31 - 1, 10**300]


@pytest.mark.parametrize("attempts", MANY, ids=lambda attempts: f"{attempts:.0e}")
@pytest.mark.parametrize(
    "factor", [1, 1.0, 1.0000001, 2, 10, 1e308, math.inf, 10**400], ids=lambda factor: str(factor)[:9]
)
def test_never_overflows_and_never_passes_the_cap(attempts: int, factor: float) -> None:
    for base in (timedelta(microseconds=1), timedelta(seconds=5), LONGEST_DELAY):
        for longest in (timedelta(microseconds=1), timedelta(hours=1), LONGEST_DELAY):
            policy = RetryPolicy(base=base, factor=factor, longest=longest, jitter=1.0)
            for chance in (0.0, 0.5, 1.0):
                delay = policy.seconds(attempts, ValueError(), chance=chance)
                assert 0.0 <= delay <= longest.total_seconds()
                timedelta(seconds=delay)


def test_the_default_doubles_from_two_seconds_to_an_hour() -> None:
    delays = [RetryPolicy().seconds(attempts, ValueError(), chance=0.0) for attempts in range(1, 15)]
    assert delays == [2.0**n for n in range(1, 12)] + [3600.0] * 3


def test_a_factor_of_one_waits_the_same_each_time() -> None:
    policy = RetryPolicy(base=timedelta(seconds=5), factor=1, jitter=0)
    assert {policy.seconds(attempts, ValueError(), chance=1.0) for attempts in MANY} == {5.0}


def test_jitter_takes_its_share_off() -> None:
    policy = RetryPolicy(base=timedelta(seconds=50), jitter=0.2)
    assert [policy.seconds(1, ValueError(), chance=chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx(
        [100, 90, 80]
    )
    assert RetryPolicy(jitter=0).seconds(3, ValueError(), chance=1.0) == 8.0
    assert RetryPolicy(jitter=1).seconds(3, ValueError(), chance=1.0) == 0.0


def test_jitter_spreads_also_at_the_cap() -> None:
    policy = RetryPolicy(longest=timedelta(seconds=100))
    assert len({policy.seconds(10**6, ValueError(), chance=n / 100) for n in range(100)}) == 100


durations = st.timedeltas(min_value=timedelta(microseconds=1), max_value=LONGEST_DELAY)
factors = st.one_of(st.floats(min_value=1.0, allow_nan=False), st.integers(min_value=1, max_value=10**50))


@given(
    base=durations,
    factor=factors,
    longest=durations,
    jitter=st.floats(0.0, 1.0),
    attempts=st.integers(min_value=1),
    chance=st.floats(0.0, 1.0),
)
def test_every_policy_stays_within_its_bounds(
    *, base: timedelta, factor: float, longest: timedelta, jitter: float, attempts: int, chance: float
) -> None:
    policy = RetryPolicy(base=base, factor=factor, longest=longest, jitter=jitter)
    delay = policy.seconds(attempts, ValueError(), chance=chance)
    assert 0.0 <= delay <= longest.total_seconds()
    assert delay >= min(base, longest).total_seconds() * (1 - jitter) * 0.999


@given(base=durations, factor=factors, longest=durations, attempts=st.integers(1, 10**6))
def test_a_later_attempt_never_waits_less(base: timedelta, factor: float, longest: timedelta, attempts: int) -> None:
    policy = RetryPolicy(base=base, factor=factor, longest=longest)
    earlier, later = (policy.seconds(n, ValueError(), chance=0.0) for n in (attempts, attempts + 1))
    assert earlier <= later


# --- A function of the user's -----------------------------------------------------------------------------------------


def test_a_function_decides_in_place_of_the_formula() -> None:
    seen: list[tuple[int, BaseException]] = []

    def backoff(attempts: int, error: BaseException) -> timedelta:
        seen.append((attempts, error))
        return timedelta(seconds=attempts * 10)

    error = ValueError()
    policy = RetryPolicy(backoff=backoff, longest=timedelta(seconds=1), jitter=1.0)
    assert policy.seconds(3, error, chance=1.0) == 30.0
    assert seen == [(3, error)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (timedelta(days=10**6), CENTURY),
        (timedelta.max, CENTURY),
        (LONGEST_DELAY, CENTURY),
        (timedelta(seconds=-5), 0.0),
        (timedelta.min, 0.0),
        (timedelta(microseconds=1), 1e-6),
    ],
)
def test_what_a_function_gives_is_brought_into_range(given: timedelta, expected: float) -> None:
    assert RetryPolicy(backoff=lambda attempts, error: given).seconds(1, ValueError(), chance=0.0) == expected


class Unhelpful:
    """It looks like something to be closed, and is not."""

    def close(self) -> None:
        raise ZeroDivisionError

    def __repr__(self) -> str:
        raise ZeroDivisionError


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


async def coroutine(attempts: int, error: BaseException) -> timedelta:
    return timedelta(seconds=99)


def raising(error: BaseException) -> Callable[[int, BaseException], Any]:
    def backoff(attempts: int, failure: BaseException) -> Any:
        raise error

    return backoff


def giving(value: object) -> Callable[[int, BaseException], Any]:
    return lambda attempts, failure: value


BROKEN: dict[str, Callable[..., Any]] = {
    "raises": raising(ZeroDivisionError()),
    "raises something unprintable": raising(UnprintableError()),
    "exits": raising(SystemExit(1)),
    "gives None": giving(None),
    "gives -5": giving(-5),
    "gives a number": giving(5.0),
    "gives NaN": giving(math.nan),
    "gives infinity": giving(math.inf),
    "gives text": giving("10"),
    "gives something that does not close": giving(Unhelpful()),
    "is a coroutine function": coroutine,
    "takes other arguments": lambda: timedelta(0),
}


@pytest.mark.parametrize("backoff", BROKEN.values(), ids=BROKEN)
def test_a_function_that_fails_is_logged_and_the_formula_is_used(
    backoff: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "asyncq"):
        delay = RetryPolicy(backoff=backoff, jitter=0).seconds(3, ValueError(), chance=0.5)
    assert delay == 8.0
    assert "backoff" in caplog.text


# --- Giving up --------------------------------------------------------------------------------------------------------


def test_gives_up_on_the_named_exceptions_and_their_kin() -> None:
    policy = RetryPolicy(give_up_on=(LookupError, SystemExit))
    assert all(policy.gives_up(error) for error in (KeyError(), IndexError(), LookupError(), SystemExit()))
    assert not any(policy.gives_up(error) for error in (ValueError(), Exception(), KeyboardInterrupt()))


def test_gives_up_on_a_group_only_when_all_its_leaves_are_final() -> None:
    policy = RetryPolicy(give_up_on=(KeyError,))
    final, other = KeyError(), ValueError()
    assert policy.gives_up(ExceptionGroup("", [final, KeyError()]))
    assert policy.gives_up(ExceptionGroup("", [final, ExceptionGroup("", [final])]))
    assert not policy.gives_up(ExceptionGroup("", [final, other]))
    assert not policy.gives_up(ExceptionGroup("", [final, ExceptionGroup("", [final, other])]))
    assert RetryPolicy(give_up_on=(ExceptionGroup,)).gives_up(ExceptionGroup("", [other]))


def test_gives_up_on_nothing_by_default() -> None:
    assert not RetryPolicy().gives_up(SystemExit())


# --- What cannot be right ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("base", each) for each in (0, 5, 1.5, "1", None, timedelta(0), timedelta(-1), timedelta(days=36_501))],
        *[("longest", each) for each in (0, 60, None, timedelta(0), -timedelta(1), timedelta.max)],
        *[("factor", each) for each in (0.99, 0, -1, True, "2", None, math.nan, -math.inf)],
        *[("jitter", each) for each in (-0.1, 1.1, True, "0", None, math.nan, math.inf)],
        *[
            ("give_up_on", each)
            for each in (ValueError, [ValueError], (1,), ("ValueError",), (int,), (ValueError(),), None)
        ],
        *[("backoff", each) for each in (5, "f", timedelta(1))],
    ],
    ids=repr,
)
def test_wrong_options_are_refused(option: str, value: object) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=option):
        RetryPolicy(**given)


def test_takes_no_positional_arguments() -> None:
    wrong: Any = RetryPolicy
    with pytest.raises(TypeError):
        wrong(timedelta(1))
