"""What a workload says of itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.stage import Contender, Figures, Lab

__all__ = ["Contender", "Figures", "Lab", "Shown", "Workload"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A row of the table: which figure of a round it shows, and how."""

    title: str
    figure: str
    digits: int = 0
    better: Literal["more", "less", "neither"] = "more"


@dataclass(frozen=True, slots=True)
class Workload:
    """One way to load a system, done once a round."""

    name: str
    group: str
    measure: Callable[[Lab, Contender], Figures]
    rows: tuple[Shown, ...]
    stores: tuple[str, ...] = ("postgresql", "redis")
    only: tuple[str, ...] = ()  # the systems it is for; all, if none is named
    skip: tuple[str, ...] = ()
    most_rounds: int = 1_000
    by_default: bool = True

    def fits(self, contender: Contender) -> bool:
        named = not self.only or contender.name in self.only
        return named and contender.name not in self.skip and contender.description.store in self.stores
