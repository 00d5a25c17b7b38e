"""What `asyncq demo` shows while it plays and in the end: live bars on a terminal, plain lines everywhere else."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from asyncq.cli.table import plain_table

__all__ = ["Step", "View", "view"]

Row = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """How far one part of the play is."""

    name: str
    done: int
    total: int


class View(Protocol):
    """What is seen of the play."""

    def say(self, text: str) -> None:
        """Show a line that stays."""
        ...

    def show(self, steps: Sequence[Step]) -> None:
        """Show how far everything is."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was; only `table` comes after it."""
        ...

    def table(self, headings: Row, rows: Sequence[Row]) -> None:
        """Show the result."""
        ...


def view() -> View:
    """Choose: live bars if this is a terminal and `rich` is there."""
    if sys.stdout.isatty():
        try:
            return _live()
        except ImportError:
            pass
    return _Plain()


class _Plain:
    """Lines only: for files, pipes, and terminals without `rich`."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown: tuple[float, str] = (0.0, "")

    def say(self, text: str) -> None:
        self._print(text)

    def show(self, steps: Sequence[Step]) -> None:
        now = time.monotonic()
        text = ", ".join(f"{step.name} {step.done}/{step.total}" for step in steps)
        when, last = self._shown
        if text != last and now >= when + 1.0:
            self._shown = (now, text)
            self._print(text)

    def close(self) -> None:
        pass

    def table(self, headings: Row, rows: Sequence[Row]) -> None:
        print("\n" + plain_table(headings, rows) + "\n", flush=True)

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)


def _live() -> View:
    # Imported here, because every `asyncq worker` would pay for it, and the extra may be missing.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn  # noqa: PLC0415 - an extra
    from rich.table import Table  # noqa: PLC0415 - an extra

    class Live:
        def __init__(self) -> None:
            self._bars = Progress(TextColumn("{task.description}"), BarColumn(40), MofNCompleteColumn())
            self._ids: dict[str, TaskID] = {}
            self._bars.start()

        def say(self, text: str) -> None:
            self._bars.console.print(text, markup=False, highlight=False)

        def show(self, steps: Sequence[Step]) -> None:
            for step in steps:
                if step.name not in self._ids:
                    self._ids[step.name] = self._bars.add_task(step.name)
                self._bars.update(self._ids[step.name], completed=step.done, total=step.total)

        def close(self) -> None:
            self._bars.stop()

        def table(self, headings: Row, rows: Sequence[Row]) -> None:
            table = Table(*headings)
            for *cells, verdict in rows:
                table.add_row(*cells, verdict, style="green" if verdict == "kept" else "bold red")
            self._bars.console.print(table)

    return Live()
