"""When a rescue may take somebody for dead: after enough contact, and with a statement that comes in time."""

from asyncq.db.instants import START
from asyncq.worker.contact import CONTACT_SECONDS, Contact

SECOND = 1_000_000


def connected(now: float, interval: float = 20.0) -> Contact:
    contact = Contact(interval)
    contact.sent(now)
    contact.answered(at=0, now=now, late=True, ended=False)
    return contact


def test_a_first_answer_begins_the_wait() -> None:
    contact = Contact(20.0)
    assert contact.missing(now=5.0) == 0.0
    assert contact.sent(now=5.0) == START.run_at
    contact.answered(at=0, now=5.0, late=True, ended=True)
    assert (contact.missing(now=6.0), contact.missing(now=25.0)) == (19.0, 0.0)
    assert Contact(0.2).needed == CONTACT_SECONDS


def test_a_statement_may_be_under_way_for_a_second() -> None:
    contact = connected(now=100.0)
    assert contact.sent(now=110.0) == 11 * SECOND
    contact.answered(at=10 * SECOND, now=110.5, late=False, ended=True)
    assert contact.missing(now=120.0) == 0.0
    assert contact.sent(now=120.5) == 21 * SECOND


def test_one_that_was_late_begins_the_wait_again() -> None:
    contact = connected(now=100.0)
    contact.sent(now=110.0)
    contact.answered(at=15 * SECOND, now=115.0, late=True, ended=False)
    assert contact.missing(now=115.0) == 20.0


def test_after_a_silence_nobody_is_rescued_and_the_wait_begins_if_leases_have_ended() -> None:
    for ended, missing in ((False, 0.0), (True, 20.0)):
        contact = connected(now=100.0)
        assert contact.sent(now=160.0) == START.run_at
        contact.answered(at=60 * SECOND, now=160.0, late=True, ended=ended)
        assert contact.missing(now=160.0) == missing
        assert contact.sent(now=161.0) == 62 * SECOND


def test_a_connection_that_is_replaced_at_once_begins_no_wait() -> None:
    """As behind a pooler that closes idle connections sooner than the wait is over."""
    for answers, missing in ((125.0, 15.0), (141.5, 20.0)):
        contact = connected(now=100.0)
        contact.sent(now=120.0)
        contact.answered(at=20 * SECOND, now=120.0, late=True, ended=True)
        contact.lost()
        assert contact.sent(now=answers) == START.run_at
        contact.answered(at=0, now=answers, late=True, ended=True)
        assert contact.missing(now=answers) == missing
        assert contact.sent(now=answers + 1.0) == 2 * SECOND
