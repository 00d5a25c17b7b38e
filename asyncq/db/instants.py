"""Instants as PostgreSQL has them: 64-bit microseconds since the year 2000, the ends of which are the infinities.

A worker reads them as these numbers. They are exact, cost nothing to read, and hold what Python's datetime cannot.
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

__all__ = ["LAST", "NEVER", "START", "Position", "literal", "readable"]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_EARLIEST = datetime(1, 1, 3, tzinfo=UTC)
_LATEST = datetime(9999, 12, 29, tzinfo=UTC)


class Position(NamedTuple):
    """A place in a lane of jobs: behind the job with this `run_at` and id."""

    run_at: int
    id: int


START = Position(-(2**63), -(2**63))
"""Before every job."""

LAST = 2**63 - 1
"""An id that no job has: behind all jobs of one instant."""


NEVER = 2**63 - 1
"""The instant after all others."""


def readable(instant: int) -> datetime:
    """Give an instant as an aware datetime; what is beyond Python's years, in any time zone, is brought to their ends.

    >>> readable(0)
    datetime.datetime(2000, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    >>> readable(-(2**63)).year, readable(2**63 - 1).year
    (1, 9999)
    """
    try:
        return min(max(_EPOCH + timedelta(microseconds=instant), _EARLIEST), _LATEST)
    except OverflowError:
        return _EARLIEST if instant < 0 else _LATEST


def literal(instant: int) -> str:
    """Give an instant as PostgreSQL reads it, in every session; a distant one becomes the infinity on its side.

    >>> literal(1), literal(-(2**63))
    ('2000-01-01T00:00:00.000001+00:00', '-infinity')
    """
    when = readable(instant)
    if when == _EARLIEST:
        return "-infinity"
    return "infinity" if when == _LATEST else when.isoformat()
