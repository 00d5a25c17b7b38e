"""`asyncq history QUEUE`: jobs that have ended, those that succeeded included, of a queue that keeps history."""

import argparse
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import psycopg

from asyncq.cli import common, table
from asyncq.cli.log import printable
from asyncq.db import history, rights
from asyncq.job import JobEvent, JobEventKind
from asyncq.queue import Queue

__all__ = ["add", "event_fields", "event_line"]

ENDS = ("completed", "discarded", "cancelled")


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "history",
        help="list jobs that have ended",
        description="List jobs that have ended, the newest first, of a queue that keeps history. 'asyncq show' tells of"
        " each run of a job.",
        allow_abbrev=False,
    )
    parser.add_argument("queue", help="the queue's name")
    parser.add_argument("--event", choices=ENDS, help="only those that ended so")
    parser.add_argument("--task", help="only those of this task")
    parser.add_argument("--before", type=int, metavar="ID", help="only those with a lower id")
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="about how many (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")
    common.add_database(parser)
    parser.set_defaults(run=run_history)


def run_history(options: argparse.Namespace) -> int:
    """Run `asyncq history`."""
    queue = Queue(options.queue, schema=common.schema_of(options))
    found, whole = common.run(_ended(common.dsn_of(options), queue, options))
    if options.json:
        for event in found:
            print(table.as_json({"id": event.job_id, "queue": event.queue, "task": event.task, **event_fields(event)}))
    elif found:
        table.show(
            ("id", "event", "attempt", "at", "ran for", "task", "error"),
            [
                (
                    str(event.job_id), event.event, str(event.attempt), _time(event.at), _ran(event), event.task,
                    last_line(event),
                )
                for event in found
            ],
        )  # fmt: skip
    else:
        print(f"no history of queue {printable(queue.name)}: it is kept with Queue(history=timedelta(days=30))")
    if not whole:
        print("asyncq: errors are not shown, as the role may not read them", file=sys.stderr)
    return 0


async def _ended(dsn: str, queue: Queue, options: argparse.Namespace) -> tuple[list[JobEvent], bool]:
    """Go from page to page until there are as many as asked for; says too whether errors could be read."""
    found: list[JobEvent] = []
    filters: Mapping[str, Any] = {"event": options.event, "task": options.task}
    event = None if options.event is None else JobEventKind(options.event)
    before, whole = options.before, True
    async with common.connected(dsn, queue.schema, rights.RECALLS) as connection:
        while True:
            limit = options.limit - len(found)
            try:
                page = await queue.ended(connection, **filters, before=before, limit=limit)
            except psycopg.errors.InsufficientPrivilege:
                whole = False
                page = await history.ended(
                    connection, queue.schema, queue=queue.name, event=event, task=options.task, before=before,
                    limit=limit, errors=False,
                )  # fmt: skip
            found += page.events
            before = page.before
            if len(found) >= options.limit or before is None:
                return found, whole


def event_fields(event: JobEvent) -> dict[str, object]:
    """What a program reads of an event, beside its job."""
    return {
        "event": event.event,
        "attempt": event.attempt,
        **{name: _iso(getattr(event, name)) for name in ("at", "created_at", "run_at", "started_at")},
        "worker": event.worker,
        "error": event.error,
    }


def event_line(event: JobEvent) -> str:
    """What a person reads of an event, in a line."""
    parts = [_time(event.at), f"attempt {event.attempt}", event.event]
    if event.started_at is not None:
        parts.append(f"after {_ran(event)}")
    if event.worker is not None:
        parts.append(f"by {event.worker}")
    line = " ".join(parts)
    return f"{line}: {error}" if (error := last_line(event)) else line


def last_line(event: JobEvent) -> str:
    """The last line of the error, where the message is."""
    lines = (event.error or "").strip().splitlines()
    return lines[-1][:100] if lines else ""


def _ran(event: JobEvent) -> str:
    if event.started_at is None:
        return ""
    return f"{(event.at - event.started_at).total_seconds():.3f} s"


def _time(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="seconds")


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
