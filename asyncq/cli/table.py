"""What a command lists: a table drawn by `rich` on a terminal, aligned text elsewhere, or a JSON object a line."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from asyncq.cli.log import printable
from asyncq.job import Job

__all__ = ["as_json", "job_json", "plain_table", "show"]

_BEYOND_ASCII = re.compile(r"[^\x20-\x7e]")


def show(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0) -> None:
    """Print a table; no cell can steer the terminal.

    Args:
        headings: of the columns.
        rows: the cells.
        numbers: from which column on they are aligned to the right.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    if not (sys.stdout.isatty() and _drawn(headings, cells, numbers)):
        print(plain_table(headings, cells, numbers=numbers))


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0) -> str:
    r"""Lay a table out as text; columns from `numbers` on, unless 0, are aligned to the right.

    >>> print(plain_table(("queue", "due"), [("emails", "17"), ("reports", "0")], numbers=1))
    queue    due
    -------  ---
    emails    17
    reports    0
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = (headings, ["-" * width for width in widths], *rows)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 0 < numbers <= place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _drawn(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: int) -> bool:
    try:
        # Imported here, because every `asyncq worker` would pay for it, and the extra may be missing.
        from rich.console import Console  # noqa: PLC0415 - an extra
        from rich.table import Table  # noqa: PLC0415 - an extra
        from rich.text import Text  # noqa: PLC0415 - an extra
    except ImportError:
        return False
    table = Table()
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if 0 < numbers <= place else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # as it is: a string would be read for markup
    Console().print(table)
    return True


def as_json(fields: Mapping[str, object], **raw: str) -> str:
    r"""Write one line of JSON, all ASCII; `raw` is JSON already.

    >>> print(as_json({"id": 1}, args='{"name": "ü"}'))
    {"id": 1, "args": {"name": "\u00fc"}}
    """
    parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
    # Only strings in JSON have other characters; escaped there they mean the same. Read and written again, its numbers
    # might not.
    for name, text in raw.items():
        parts.append(f"{json.dumps(name)}: {_BEYOND_ASCII.sub(lambda each: json.dumps(each[0])[1:-1], text)}")
    return "{" + ", ".join(parts) + "}"


def job_json(job: Job, *, whole: bool, events: Sequence[object] = ()) -> str:
    """Write a job as one line of JSON; `whole`: its arguments and last error were read."""
    fields: dict[str, Any] = {
        "id": job.id,
        "queue": job.queue,
        "task": job.task,
        "state": job.state,
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "lease_seconds": job.lease.total_seconds(),
        **{name: _iso(getattr(job, name)) for name in ("run_at", "created_at", "attempted_at", "finished_at")},
    }
    if events:
        fields["events"] = events
    return as_json({**fields, "last_error": job.last_error}, args=job.args_json) if whole else as_json(fields)


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
