"""How long an idle worker hesitates before it follows a notification, which every worker of the queue has heard.

All look at once, and one finds the job: so who looked in vain waits a little the next time, longer with each look in
vain, and who found work waits less, or not at all. Of many idle workers a few come to take what trickles in. The others
come in, within a second, when these are busy. Where jobs are so rare that looks in vain are too, nobody waits.

Nothing here waits: time comes in as a value.
"""

from math import inf

__all__ = ["Hesitation"]

FIRST_SECONDS = 0.004
LONGEST_SECONDS = 0.9

HEAPED = 3
"""So many jobs found at once show that nobody else follows the notifications."""

RARE_SECONDS = 1.5
"""Looks in vain that are so far apart cost too little to let a job wait for the sake of having fewer."""

EXCUSED_SECONDS = 0.01
"""A look in vain so soon after one that found work is no reason to wait: the first look found what both were about."""


class Hesitation:
    """The hesitation of one worker.

    >>> hesitation = Hesitation()
    >>> [hesitation.in_vain(now) or hesitation.seconds for now in (1.0, 1.1, 1.2, 1.3)]
    [0.0, 0.004, 0.008, 0.016]
    >>> hesitation.found(1, now=1.4) or hesitation.seconds
    0.008
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        """How long to wait, 0 for not at all."""
        self._found_at = self._vain_at = -inf

    def found(self, count: int, now: float, *, full: bool = False) -> None:
        """Note a look that found jobs; `full`, there may have been more."""
        self._found_at = now
        # A single job is what others would have taken a moment later.
        if count < HEAPED and not full:
            self._ease()
        else:
            self.seconds = 0.0

    def in_vain(self, now: float) -> None:
        """Note a look that found nothing of what it was told."""
        if now - self._found_at <= EXCUSED_SECONDS:
            return
        if now - self._vain_at >= RARE_SECONDS:
            self._ease()
        else:
            self.seconds = min(max(2.0 * self.seconds, FIRST_SECONDS), LONGEST_SECONDS)
        self._vain_at = now

    def _ease(self) -> None:
        self.seconds = self.seconds / 2.0 if self.seconds > FIRST_SECONDS else 0.0
