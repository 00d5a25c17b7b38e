"""When a worker keeps its queue quiet, and when it sleeps: the decisions, with time as a value."""

from asyncq.worker.quiet import Quiet, State

POLL = 60.0


class At:
    """A state, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.quiet = Quiet(self.now, POLL)

    def after(self, seconds: float) -> "At":
        self.now += seconds
        return self

    def hears(self, times: int) -> "At":
        for _ in range(times):
            self.quiet.heard(self.now)
        return self

    def pressed(self) -> "At":
        """Told often, while writers wait for each other."""
        self.hears(10)
        assert self.quiet.doubts(self.now)
        self.quiet.pressure(3, self.now)
        return self

    def claims(self, found: int, *, full: bool = False, looked: bool = True) -> "At":
        self.quiet.claimed(self.now, found, full=full, looked=looked)
        return self

    def looks_for(self, seconds: float, found: int = 0) -> "At":
        """Look as often as it is to be, without waiting for a slot."""
        until = self.now + seconds
        while self.quiet.look_at <= until:
            self.now = max(self.now, self.quiet.look_at)
            self.claims(found)
        self.now = until
        return self

    def wishes(self) -> State | None:
        return self.quiet.wish(self.now)

    def tries(self, wish: State, *, got: bool = True) -> "At":
        assert self.wishes() is wish
        self.quiet.settle(wish, self.now, got=got)
        assert self.quiet.state is (wish if got else State.HOT)
        return self

    def reads(self, *writers: str) -> bool:
        assert self.quiet.reads(self.now)
        return self.quiet.read(set(writers), self.now)


def idle() -> At:
    at = At()
    at.quiet.subscribed(at.now)
    at.tries(State.IDLE)
    assert at.reads()
    return at.after(1)


def keeper() -> At:
    return idle().pressed().tries(State.KEEPER)


def test_before_it_listens_it_looks_by_itself_and_holds_nothing() -> None:
    at = At()
    assert at.quiet.look_at == at.now
    assert at.looks_for(1).wishes() is None


def test_an_idle_worker_wishes_nothing_and_wakes_for_nothing() -> None:
    at = idle()
    assert at.quiet.look_at == float("inf")
    assert at.quiet.wake_at(at.now) == float("inf")
    assert at.after(3600).wishes() is None


def test_notifications_are_followed_until_writers_wait_for_each_other() -> None:
    at = idle()
    for _ in range(100):
        assert at.hears(1).after(0.025).wishes() is None
        assert not at.quiet.doubts(at.now)
    asked: list[float] = []
    for _ in range(2_000):
        at.hears(1).after(0.01)
        if at.quiet.doubts(at.now):
            asked.append(at.now)
            at.quiet.pressure(2, at.now)
        assert at.wishes() is None
    # Ever less often.
    assert 5 < len(asked) < 20
    at.after(2).pressed().tries(State.KEEPER)
    assert at.quiet.look_at == at.now


def test_a_backlog_makes_it_look_by_itself_without_any_notification() -> None:
    at = idle().claims(50, full=True)
    began = at.now
    assert at.quiet.wake_at(at.now) == began + 0.1
    at.after(0.05).claims(50, full=True, looked=False)
    assert at.wishes() is None
    at.after(0.051).tries(State.KEEPER)
    # A backlog that goes on, also one of slots that are all taken for long, is no reason to come back.
    assert at.after(100).wishes() is None
    at.claims(3).after(0.001).tries(State.IDLE)


def test_a_burst_that_is_soon_over_changes_nothing() -> None:
    at = idle().claims(50, full=True).after(0.05).claims(20)
    assert at.after(1).wishes() is None


def test_while_it_keeps_it_looks_every_few_milliseconds_until_it_is_dry() -> None:
    at = keeper()
    for _ in range(50):
        at.looks_for(0.002, found=1)
        assert at.quiet.look_at - at.now <= 0.002
        assert at.wishes() is None
    at.looks_for(0.22)
    assert at.wishes() is None
    at.looks_for(0.04).tries(State.IDLE)
    assert at.quiet.look_at == float("inf")
    assert at.reads("1/1")


def test_writers_of_jobs_for_later_have_it_keep_for_longer_each_time() -> None:
    at = idle()
    kept: list[float] = []
    for _ in range(8):
        at.pressed().tries(State.KEEPER)
        began = at.now
        while at.wishes() is None:
            at.looks_for(0.01)
        kept.append(at.now - began)
        at.tries(State.IDLE).after(0.5)
    assert kept == sorted(kept)
    assert kept[0] < 0.3
    assert 7.9 < kept[-1] < 8.1
    # After a while it is as before.
    at.after(10).pressed().tries(State.KEEPER).looks_for(0.3)
    assert at.wishes() is State.IDLE


def test_refused_it_looks_ever_less_often_at_least_once_a_second() -> None:
    at = idle().pressed().tries(State.KEEPER, got=False)
    pauses: list[float] = []
    for _ in range(120):
        at.now = at.quiet.look_at
        at.claims(0)
        pauses.append(round(at.quiet.look_at - at.now, 6))
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.005
    assert pauses[-1] == 1.0
    # What is found brings it back.
    at.now = at.quiet.look_at
    assert at.claims(1).quiet.look_at - at.now <= 0.25
    at.claims(50, full=True).claims(1)
    assert at.quiet.look_at - at.now < 0.005


def test_refused_it_tries_again_less_often_in_time_and_asks_the_keeper_once_a_second() -> None:
    at = idle().pressed()
    tries, asked = 0, 0
    began = at.now
    while at.now < began + 20:
        wish = at.wishes()
        if wish is not None:
            tries += 1
            at.quiet.settle(wish, at.now, got=False)
        asked += at.quiet.asks
        at.quiet.asks = False
        at.looks_for(max(at.quiet.wake_at(at.now) - at.now, 0.001))
    assert 60 < tries < 150
    assert 18 <= asked <= 20


def test_who_has_no_free_slot_does_not_ask_and_gives_way_when_asked() -> None:
    at = keeper().claims(50, full=True)
    at.quiet.asked(at.after(0.1).now)
    assert at.wishes() is None
    at.after(0.1).quiet.asked(at.now)
    at.tries(State.HOT)
    # For a second, K is the others'.
    for _ in range(9):
        assert at.after(0.1).wishes() is None
    at.after(0.2).tries(State.KEEPER, got=False)
    at.after(3).tries(State.KEEPER, got=False)
    assert not at.quiet.asks


def test_a_keeper_that_can_look_heeds_no_question() -> None:
    at = keeper().looks_for(0.1, found=1)
    at.quiet.asked(at.now)
    assert at.wishes() is None


def test_a_question_of_another_worker_counts_as_its_own() -> None:
    at = At()
    at.quiet.subscribed(at.now)
    at.tries(State.IDLE, got=False).looks_for(0.5)
    at.quiet.asked(at.now)
    at.tries(State.IDLE, got=False)
    assert not at.quiet.asks
    at.looks_for(1.1).tries(State.IDLE, got=False)
    assert at.quiet.asks


def test_it_looks_whenever_one_that_had_the_lock_has_ended() -> None:
    at = At()
    at.quiet.subscribed(at.now)
    at.tries(State.IDLE)
    assert at.reads("3/1", "4/1")
    at.now = at.quiet.wake_at(at.now)
    assert not at.reads("3/1", "4/1", "5/1")
    at.now = at.quiet.wake_at(at.now)
    assert at.reads("4/1", "5/1")
    at.now = at.quiet.wake_at(at.now)
    assert at.reads("5/1")
    assert at.quiet.wake_at(at.now) == float("inf")


def test_a_prepared_transaction_without_a_name_of_its_own_is_waited_for() -> None:
    at = At()
    at.quiet.subscribed(at.now)
    at.tries(State.IDLE)
    assert at.reads("3/1")
    at.now = at.quiet.wake_at(at.now)
    # 3/1 was prepared, perhaps, and has become this one.
    assert at.reads("-1/700")
    at.now = at.quiet.wake_at(at.now)
    assert not at.reads("-1/700")
    at.now = at.quiet.wake_at(at.now)
    assert at.reads()
    assert at.quiet.wake_at(at.now) == float("inf")


def test_a_transaction_held_for_long_costs_a_few_readings() -> None:
    at = At()
    at.quiet.subscribed(at.now)
    at.tries(State.IDLE)
    began, readings = at.now, 0
    while at.quiet.wake_at(at.now) < float("inf"):
        at.now = at.quiet.wake_at(at.now)
        at.reads("3/1")
        readings += 1
    # From then on the polls come more often.
    assert at.now - began >= 4 * POLL
    assert readings < 60


def test_a_lost_connection_has_it_look_by_itself_until_it_listens_again() -> None:
    for at in (idle(), keeper()):
        at.quiet.lost(at.now)
        assert at.quiet.state is State.HOT
        assert at.quiet.look_at == at.now
        assert at.looks_for(10).wishes() is None
        assert at.quiet.look_at - at.now <= 1.0
        at.quiet.subscribed(at.now)
        at.tries(State.IDLE)
        assert at.reads()


def test_claims_that_fail_have_it_keep_nothing() -> None:
    at = keeper()
    at.quiet.trouble()
    at.tries(State.HOT)
    assert at.after(10).wishes() is None
    at.claims(50, full=True).tries(State.KEEPER)
    # An idle worker is told all the same, and goes on sleeping.
    at = idle()
    at.quiet.trouble()
    assert at.wishes() is None


def test_a_worker_that_stops_gives_all_back_for_good() -> None:
    for at in (idle(), keeper()):
        at.quiet.stop()
        at.tries(State.HOT)
        at.claims(50, full=True).hears(20)
        assert at.after(10).wishes() is None
        assert at.quiet.look_at == float("inf")
        assert at.quiet.wake_at(at.now) == float("inf")
        at.quiet.subscribed(at.now)
        assert at.wishes() is None
        assert at.quiet.look_at == float("inf")
