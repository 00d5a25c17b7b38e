"""How free slots are divided among queues: all of them, by weight, exactly over time."""

from hypothesis import given
from hypothesis import strategies as st

from asyncq.worker.claim import share

weights = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 1_000), min_size=1)


def fresh(given_weights: dict[str, int]) -> dict[str, float]:
    return dict.fromkeys(given_weights, 0.0)


@given(weights, st.lists(st.integers(1, 10_000), min_size=1, max_size=30))
def test_all_slots_are_given_away_and_no_more(given_weights: dict[str, int], frees: list[int]) -> None:
    credit = fresh(given_weights)
    for free in frees:
        slots = share(free, given_weights, credit)
        assert sum(slots.values()) == free
        assert all(count > 0 for count in slots.values())


@given(weights, st.lists(st.integers(1, 50), min_size=1, max_size=200))
def test_over_time_each_queue_has_its_share(given_weights: dict[str, int], frees: list[int]) -> None:
    credit, had = fresh(given_weights), dict.fromkeys(given_weights, 0)
    for free in frees:
        for queue, count in share(free, given_weights, credit).items():
            had[queue] += count
    total = sum(given_weights.values())
    for queue, weight in given_weights.items():
        assert abs(had[queue] - sum(frees) * weight / total) <= len(given_weights)


@given(weights, st.lists(st.tuples(st.integers(1, 50), st.sets(st.sampled_from("abcdefgh"))), max_size=100))
def test_whichever_queues_have_work_the_slots_are_all_used(
    given_weights: dict[str, int], turns: list[tuple[int, set[str]]]
) -> None:
    credit = fresh(given_weights)
    for free, ready in turns:
        asked = {queue: weight for queue, weight in given_weights.items() if queue in ready}
        if asked:
            slots = share(free, asked, credit)
            assert sum(slots.values()) == free
            assert set(slots) <= set(asked)
            assert all(count > 0 for count in slots.values())


def test_one_slot_at_a_time_still_keeps_the_weights() -> None:
    given_weights = {"flooded": 9, "small": 1}
    credit = fresh(given_weights)
    turns = [next(iter(share(1, given_weights, credit))) for _ in range(100)]
    assert (turns.count("flooded"), turns.count("small")) == (90, 10)
    # The small one does not wait for the flood to end.
    assert "small" in turns[:10]


def test_the_order_of_serving_is_kept() -> None:
    given_weights = {"c": 1, "a": 1, "b": 1}
    assert list(share(9, given_weights, fresh(given_weights))) == ["c", "a", "b"]


def test_a_queue_alone_has_everything() -> None:
    assert share(7, {"only": 3}, {"only": 0.0}) == {"only": 7}
