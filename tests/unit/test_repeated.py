"""Many equal failures: a few have a line each, the others are counted, and none is left out."""

import pytest

from asyncq.worker.repeated import FIRST, WINDOW_SECONDS, Kind, More, Repeated

PAY = Kind("shop.pay", "ValueError", final=False)


def flood(failures: Repeated, kind: Kind, count: int, now: float) -> int:
    """How many of so many have a line each; the jobs are numbered from 1."""
    return sum(failures.met(kind, job, now) for job in range(1, count + 1))


def test_the_first_have_a_line_each_and_the_others_one_together() -> None:
    failures = Repeated()
    assert flood(failures, PAY, 1_000, 100.0) == FIRST
    assert failures.next_end() == 100.0 + WINDOW_SECONDS
    assert failures.ended(100.0 + WINDOW_SECONDS) == [More(PAY, 1_000 - FIRST, 1_000, WINDOW_SECONDS)]


def test_a_few_are_not_summed_up() -> None:
    failures = Repeated()
    assert flood(failures, PAY, FIRST, 100.0) == FIRST
    assert failures.ended(100.0 + WINDOW_SECONDS) == []
    assert failures.next_end() is None


@pytest.mark.parametrize(
    "other", [PAY._replace(task="shop.ship"), PAY._replace(error="KeyError"), PAY._replace(final=True)], ids=str
)
def test_each_kind_is_counted_by_itself(other: Kind) -> None:
    failures = Repeated()
    assert flood(failures, PAY, 10, 100.0) == flood(failures, other, 20, 103.0) == FIRST
    assert failures.ended(100.0 + WINDOW_SECONDS) == [More(PAY, 5, 10, WINDOW_SECONDS)]
    assert failures.next_end() == 103.0 + WINDOW_SECONDS
    assert failures.ended(103.0 + WINDOW_SECONDS) == [More(other, 15, 20, WINDOW_SECONDS)]


def test_a_new_window_begins_with_the_first_failure_after_the_end_of_one() -> None:
    failures = Repeated()
    flood(failures, PAY, 10, 100.0)
    failures.ended(110.0)
    assert flood(failures, PAY, 10, 115.0) == FIRST
    assert failures.next_end() == 115.0 + WINDOW_SECONDS


def test_nothing_is_lost_when_the_end_is_asked_for_late_or_early() -> None:
    failures = Repeated()
    flood(failures, PAY, 10, 100.0)
    flood(failures, PAY, 10, 100.0 + WINDOW_SECONDS + 1.0)
    assert failures.ended(115.0) == [More(PAY, 15, 10, 15.0)]
    flood(failures, PAY, 10, 120.0)
    assert failures.ended(121.0) == []
    assert failures.ended(121.0, at_once=True) == [More(PAY, 5, 10, 1.0)]
    assert failures.next_end() is None
