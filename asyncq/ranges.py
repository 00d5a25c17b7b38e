"""What values names, numbers and durations may have. Each check gives the value back, or raises the error asked for."""

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from asyncq.errors import LONGEST_DELAY, AsyncqError

__all__ = [
    "IDS",
    "LONGEST_LEASE",
    "MAX_ATTEMPTS",
    "PRIORITIES",
    "SHORTEST_LEASE",
    "aware",
    "duration",
    "ids",
    "name",
    "storable",
    "whole_number",
]

Error = Callable[[str], AsyncqError]

IDS = (1, 2**63 - 1)
PRIORITIES = (-32_768, 32_767)
MAX_ATTEMPTS = (1, 32_767)
SHORTEST_LEASE = timedelta(seconds=0.5)
LONGEST_LEASE = timedelta(days=7)

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def name(what: str, value: object, error: Error) -> str:
    """A queue's or a task's name: 1 to 128 characters that PostgreSQL can hold, none a control character."""
    if not isinstance(value, str):
        raise error(f"{what} must be a string, not {type(value).__name__}")
    if not 1 <= len(value) <= 128:
        raise error(f"{what} must have 1 to 128 characters, not {len(value)}")
    if _CONTROL.search(value):
        raise error(f"{what} must have no control characters, got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise error(f"{what} must be text that UTF-8 can encode, got {value!r}") from None
    return value


def whole_number(what: str, value: object, allowed: tuple[int, int], error: Error) -> int:
    """A whole number in an inclusive range; True and 1.0 are none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise error(f"{what} must be a whole number from {allowed[0]:,} to {allowed[1]:,}, not {value!r:.100}")
    if not allowed[0] <= value <= allowed[1]:
        # A number of thousands of digits cannot even be printed.
        shown = f"{value:,}" if value.bit_length() < 200 else "a much larger one"
        raise error(f"{what} must be a whole number from {allowed[0]:,} to {allowed[1]:,}, not {shown}")
    return value


def duration(
    what: str,
    value: object,
    error: Error,
    *,
    shortest: timedelta = timedelta(0),
    longest: timedelta = LONGEST_DELAY,
) -> timedelta:
    """A timedelta in an inclusive range."""
    if not isinstance(value, timedelta):
        raise error(f"{what} must be a timedelta, not {type(value).__name__}")
    if not shortest <= value <= longest:
        raise error(f"{what} must be between {_shown(shortest)} and {_shown(longest)}, not {_shown(value)}")
    return value


def _shown(value: timedelta) -> str:
    seconds = value.total_seconds()
    return f"{seconds / 86_400:,g} days" if abs(seconds) >= 86_400 else f"{seconds:g} s"


def aware(what: str, value: object, error: Error) -> datetime:
    """A datetime with a time zone: a naive one means another moment on each machine."""
    if not isinstance(value, datetime):
        raise error(f"{what} must be a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise error(f"{what} must have a time zone, such as datetime.now(timezone.utc); got {value!r}")
    return value


def ids(what: str, values: object, error: Error) -> list[int]:
    """Several ids of jobs."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise error(f"{what} must be several ids, such as [17], not {values!r:.100}")
    several: Iterable[object] = values
    return [whole_number(what, each, IDS, error) for each in several]


def storable(what: str, value: object, error: Error) -> str:
    """JSON as jsonb holds it, written: Python's also has NaN, NUL and half pairs."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as reason:
        raise error(f"{what} must be a JSON object that PostgreSQL can store: {reason}") from None
    if _NUL.search(text):
        raise error(f"{what} must be a JSON object that PostgreSQL can store: it has NUL characters")
    return text
