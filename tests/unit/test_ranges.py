"""The ranges of names, numbers and durations: each check gives the value back or says what is allowed."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncq import ranges
from asyncq.errors import ConfigurationError, InvalidArgsError


@pytest.mark.parametrize(
    "name", ["x", " ", "x" * 128, "\N{GRINNING FACE}" * 128, "a'b\"c\\;%s{}", "ü/..?%2f", "\u202e", "$1"]
)
def test_names_that_may_be(name: str) -> None:
    assert ranges.name("it", name, ConfigurationError) == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "1 to 128 characters, not 0"),
        ("x" * 129, "1 to 128 characters, not 129"),
        ("x" * 10_000, "not 10000"),
        ("a\nb", "control"),
        ("a\r", "control"),
        ("\t", "control"),
        ("\x00", "control"),
        ("\x1b[31m", "control"),
        ("\x7f", "control"),
        ("\x85", "control"),
        ("\x9b", "control"),
        ("\ud800", "UTF-8"),
        (None, "string, not NoneType"),
        (5, "string, not int"),
        (b"x", "string, not bytes"),
        (["x"], "string, not list"),
    ],
)
def test_names_that_may_not_be(name: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^it must .*{says}") as raised:
        ranges.name("it", name, ConfigurationError)
    assert not any(character < " " for character in str(raised.value))
    str(raised.value).encode()


@given(st.text(min_size=1, max_size=128))
def test_a_name_that_is_taken_can_be_written_to_the_table(text: str) -> None:
    try:
        name = ranges.name("it", text, ConfigurationError)
    except ConfigurationError:
        return
    assert "\x00" not in name.encode().decode()


@pytest.mark.parametrize("value", [-32_768, -1, 0, 1, 32_767])
def test_whole_numbers_in_range(value: int) -> None:
    assert ranges.whole_number("it", value, ranges.PRIORITIES, ConfigurationError) == value


@pytest.mark.parametrize(
    "value",
    [-32_769, 32_768, 2**31, 2**63, 10**5_000, -(10**5_000), True, False, 1.0, 1.5, "1", None, [1]],
    ids=lambda _: "",
)
def test_anything_else_is_told_the_range(value: object) -> None:
    with pytest.raises(InvalidArgsError, match=r"it must be a whole number from -32,768 to 32,767, not .") as raised:
        ranges.whole_number("it", value, ranges.PRIORITIES, InvalidArgsError)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("value", [timedelta(0), timedelta(microseconds=1), timedelta(days=36_500)])
def test_durations_in_range(value: timedelta) -> None:
    assert ranges.duration("it", value, ConfigurationError) == value


@pytest.mark.parametrize("value", [-timedelta(microseconds=1), timedelta(days=36_501), timedelta.max, timedelta.min])
def test_durations_out_of_range(value: timedelta) -> None:
    with pytest.raises(ConfigurationError, match="it must be between 0 s and 36,500 days"):
        ranges.duration("it", value, ConfigurationError)


@pytest.mark.parametrize("value", [0, 1.5, "1", None, True])
def test_a_duration_is_a_timedelta(value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"it must be a timedelta, not {type(value).__name__}"):
        ranges.duration("it", value, ConfigurationError)


@pytest.mark.parametrize(
    "value", [datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=ZoneInfo("Asia/Kathmandu")),
              datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=-12)))],
)  # fmt: skip
def test_times_with_a_zone(value: datetime) -> None:
    assert ranges.aware("it", value, InvalidArgsError) is value


@pytest.mark.parametrize("value", [datetime(2030, 1, 1), datetime.max, datetime.min])  # noqa: DTZ001, DTZ901 - that is what is refused
def test_times_without_a_zone(value: datetime) -> None:
    with pytest.raises(InvalidArgsError, match="it must have a time zone"):
        ranges.aware("it", value, InvalidArgsError)


@pytest.mark.parametrize("value", [None, 5, "2030-01-01T00:00:00+00:00", datetime(2030, 1, 1, tzinfo=UTC).date()])
def test_a_time_is_a_datetime(value: Any) -> None:
    with pytest.raises(InvalidArgsError, match="it must be a datetime, not"):
        ranges.aware("it", value, InvalidArgsError)
