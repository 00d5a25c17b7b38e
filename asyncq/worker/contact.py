"""Whether the workers that live have had time to extend their leases: if not, nobody may be taken for dead.

After an outage that takes one heartbeat interval. A connection that breaks and is replaced at once is none. But one may
outlive an outage, of a server that stood still or behind a pooler that waits for one, and what waited meanwhile is
carried out in any order then. So a rescue says when it should have come, on the server's clock, and does nothing if it
comes later. Nor does it after a silence in which an outage may have gone unnoticed.

Nothing here waits: times come in as values, seconds of the event loop's clock and instants of the database's.
"""

from math import inf

from asyncq.db.instants import START

__all__ = ["CONTACT_SECONDS", "WAY_SECONDS", "Contact"]

CONTACT_SECONDS = 3.0
"""The least time of unbroken contact before a rescue: anybody's jobs are rescued, and heartbeats try each 2 seconds."""

WAY_SECONDS = 1.0
"""How long a statement may be on its way to the server."""


class Contact:
    """Note the answers of one connection.

    >>> contact = Contact(interval=20.0)
    >>> contact.sent(now=0.0) == START.run_at
    True
    >>> contact.answered(at=5_000_000, now=0.0, late=True, ended=False)
    >>> contact.missing(now=1.0), contact.missing(now=20.0)
    (19.0, 0.0)
    >>> contact.sent(now=20.0)
    26000000

    Args:
        interval: seconds between heartbeats.
    """

    def __init__(self, interval: float) -> None:
        self.needed = max(interval, CONTACT_SECONDS)
        """Seconds of contact before a rescue, and how long a silence leaves it unbroken."""
        self._since = -inf
        # The same moment on both clocks.
        self._answered: tuple[int, float] | None = None
        self._was_silent = False
        self._lost_at: float | None = None

    def lost(self) -> None:
        """Note that it is another connection from now on, perhaps to another server, with another clock."""
        if self._answered is not None:
            self._lost_at = self._answered[1]
        self._answered = None

    def missing(self, now: float) -> float:
        """Seconds until a rescue makes sense."""
        return 0.0 if self._answered is None else max(self._since + self.needed - now, 0.0)

    def sent(self, now: float) -> int:
        """Note that a statement is sent; gives the instant after which it comes too late."""
        if self._answered is None:
            return START.run_at
        instant, at = self._answered
        self._was_silent = now - at > self.needed + WAY_SECONDS
        return START.run_at if self._was_silent else instant + int((now - at + WAY_SECONDS) * 1_000_000)

    def answered(self, at: int, now: float, *, late: bool, ended: bool) -> None:
        """Note its answer.

        Args:
            at: the instant of it.
            now: when it is here.
            late: whether the statement came too late.
            ended: whether leases have ended. After a silence those that still run can be extended in time.
        """
        if self._answered is None:
            outage = self._lost_at is None or now - self._lost_at > self.needed + WAY_SECONDS
        else:
            outage = late and (ended or not self._was_silent)
        if outage:
            self._since = now
        self._answered = at, now
