"""How long an idle worker waits before it follows what all have heard."""

from asyncq.worker.hesitation import Hesitation


def vain(times: int) -> tuple[Hesitation, float]:
    """One after looks in vain half a second apart, and the time of the last."""
    hesitation, now = Hesitation(), 100.0
    hesitation.in_vain(now)
    for _ in range(times):
        now += 0.5
        hesitation.in_vain(now)
    return hesitation, now


def test_it_begins_without() -> None:
    assert Hesitation().seconds == 0.0


def test_it_grows_with_each_look_in_vain_and_stays_below_a_second() -> None:
    grown = [vain(times)[0].seconds for times in range(12)]
    assert grown[:4] == [0.0, 0.004, 0.008, 0.016]
    assert grown == sorted(grown)
    assert grown[-1] == 0.9


def test_a_single_job_halves_it_until_it_is_gone() -> None:
    hesitation, now = vain(20)
    for _ in range(7):
        before = hesitation.seconds
        hesitation.found(1, now)
        assert hesitation.seconds == before / 2
    for _ in range(2):
        hesitation.found(1, now)
    assert hesitation.seconds == 0.0


def test_many_jobs_or_all_that_was_asked_for_end_it() -> None:
    for count, full in ((3, False), (1, True)):
        hesitation, now = vain(20)
        hesitation.found(count, now, full=full)
        assert hesitation.seconds == 0.0


def test_a_second_look_at_what_the_first_has_found_is_no_reason() -> None:
    hesitation = Hesitation()
    hesitation.found(2, 100.0)
    hesitation.in_vain(100.005)
    assert hesitation.seconds == 0.0
    hesitation.in_vain(100.02)
    hesitation.in_vain(100.03)
    assert hesitation.seconds == 0.004


def test_looks_in_vain_that_are_rare_are_no_reason_and_end_it() -> None:
    hesitation = Hesitation()
    for now in range(100, 140, 2):
        hesitation.in_vain(float(now))
        assert hesitation.seconds == 0.0

    hesitation, then = vain(20)
    for now in range(2, 20, 2):
        assert hesitation.seconds > 0.0
        hesitation.in_vain(then + now)
    assert hesitation.seconds == 0.0
