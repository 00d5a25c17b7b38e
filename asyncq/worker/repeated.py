"""Which of many equal failures get a line each in the log, and what is said of the others: nothing is left out.

Nothing here waits, and the time comes in as a value.
"""

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["FIRST", "WINDOW_SECONDS", "Kind", "More", "Repeated"]

FIRST = 5
"""How many of a kind are logged each, within a window."""

WINDOW_SECONDS = 10.0


class Kind(NamedTuple):
    """Which failures are equal."""

    task: str
    error: str
    final: bool


class More(NamedTuple):
    """What is to be said of the others of a kind."""

    kind: Kind
    times: int
    last_job: int
    seconds: float


@dataclass(slots=True)
class _Window:
    began: float
    count: int = 0
    last_job: int = 0


class Repeated:
    """Count failures. The window of a kind begins with the first of it, and its end is asked for by `ended`.

    >>> failures, kind = Repeated(), Kind("shop.pay", "ValueError", final=False)
    >>> [failures.met(kind, job, now=0.0) for job in range(7)]
    [True, True, True, True, True, False, False]
    >>> failures.ended(now=10.0)
    [More(kind=Kind(task='shop.pay', error='ValueError', final=False), times=2, last_job=6, seconds=10.0)]
    """

    def __init__(self) -> None:
        self._windows: dict[Kind, _Window] = {}

    def met(self, kind: Kind, job: int, now: float) -> bool:
        """Note a failure; says whether it is logged by itself."""
        window = self._windows.setdefault(kind, _Window(now))
        window.count += 1
        window.last_job = job
        return window.count <= FIRST

    def ended(self, now: float, *, at_once: bool = False) -> list[More]:
        """Forget the windows that have ended, or all, and give what is to be said of them."""
        over = {
            kind: window for kind, window in self._windows.items() if at_once or now >= window.began + WINDOW_SECONDS
        }
        for kind in over:
            del self._windows[kind]
        return [
            More(kind, window.count - FIRST, window.last_job, now - window.began)
            for kind, window in over.items()
            if window.count > FIRST
        ]

    def next_end(self) -> float | None:
        """When the next window ends; None while there is none."""
        return min((window.began + WINDOW_SECONDS for window in self._windows.values()), default=None)
