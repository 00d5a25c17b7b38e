"""`asyncq jobs QUEUE` and `asyncq show ID …`: look at jobs, many in short or some in full."""

import argparse
import contextlib
import json
import sys
from datetime import datetime
from typing import Any

import psycopg

from asyncq import ranges
from asyncq.cli import common, table
from asyncq.cli.history import event_fields, event_line
from asyncq.cli.log import printable
from asyncq.db import history, inspect, rights
from asyncq.errors import InvalidArgsError
from asyncq.job import Job, JobEvent, JobState
from asyncq.queue import Queue

__all__ = ["add"]

UNSEEN = "asyncq: arguments and errors are left out: this role may not read them"


def add(commands: Any) -> None:
    """Declare the commands."""
    listing = commands.add_parser(
        "jobs", help="list jobs", description="List a queue's jobs, the newest first.", allow_abbrev=False
    )
    listing.add_argument("queue", help="the queue's name")
    listing.add_argument("--state", choices=list(map(str, JobState)), help="only such")
    listing.add_argument("--task", metavar="NAME", help="only those of this task")
    listing.add_argument("--older-than", type=common.seconds, metavar="SECONDS", help="only those deferred so long ago")
    listing.add_argument(
        "--arg", action="append", type=_argument, metavar="NAME=JSON", default=[],
        help="only those with this argument, such as user_id=17 or 'name=\"ada\"' (may be repeated)",
    )  # fmt: skip
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="how many at most (default: %(default)s)")
    listing.add_argument("--before", type=int, metavar="ID", help="only those with a lower id, to go on in the list")
    listing.add_argument("--json", action="store_true", help="print a JSON object a line")
    common.add_database(listing)
    listing.set_defaults(run=run_jobs)
    showing = commands.add_parser(
        "show", help="show jobs in full", description="Show jobs with all that is known of them.", allow_abbrev=False
    )
    showing.add_argument("ids", nargs="+", type=int, metavar="ID", help="which ones, of any queue")
    showing.add_argument("--json", action="store_true", help="print a JSON object a line")
    common.add_database(showing)
    showing.set_defaults(run=run_show)


def _argument(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=JSON, such as user_id=17, not {text!r}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        raise argparse.ArgumentTypeError(
            f"{name}= must have JSON behind it, a string in quotes, not {value!r}"
        ) from None


def run_jobs(options: argparse.Namespace) -> int:
    """Run `asyncq jobs`."""
    queue = Queue(options.queue, schema=common.schema_of(options))
    found, whole = common.run(_jobs(common.dsn_of(options), queue, options))
    if options.json:
        for job in found:
            print(table.job_json(job, whole=whole))
    elif found:
        rows = [_row(job, whole=whole) for job in found]
        table.show(("id", "state", "attempts", "run at", "task" if not whole else "task and arguments", "error"), rows)
    else:
        print(f"no such jobs in queue {printable(queue.name)}")
    if not whole:
        print(UNSEEN, file=sys.stderr)
    return 0


async def _jobs(dsn: str, queue: Queue, options: argparse.Namespace) -> tuple[list[Job], bool]:
    """Go from page to page until there are as many as asked for; says too whether arguments could be read."""
    args = dict(options.arg) or None
    state = None if options.state is None else JobState(options.state)
    filters: dict[str, Any] = {"state": state, "task": options.task, "older_than": options.older_than}
    found: list[Job] = []
    before, whole = options.before, True
    needed = rights.OUTLINES if args is None else rights.LISTS
    async with common.connected(dsn, queue.schema, needed) as connection:
        while True:
            limit = options.limit - len(found)
            try:
                page = await queue.jobs(connection, **filters, args=args, before=before, limit=limit)
            except psycopg.errors.InsufficientPrivilege:
                if args is not None:
                    raise
                whole = False
                page = await inspect.outlines(
                    connection, queue.schema, queue=queue.name, limit=limit, before=before, **filters
                )
            found += page.jobs
            before = page.before
            if len(found) >= options.limit or before is None:
                return found, whole


def _row(job: Job, *, whole: bool) -> tuple[str, ...]:
    error = (job.last_error or "").strip()
    return (
        str(job.id),
        job.state,
        f"{job.attempts} of {job.max_attempts}",
        _time(job.run_at),
        job.task if not whole else f"{job.task}({_cut(job.args_json, 100)})",
        _cut(error.splitlines()[-1], 100) if error else "",
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _time(time: datetime | None) -> str:
    return "" if time is None else time.isoformat(sep=" ", timespec="seconds")


def run_show(options: argparse.Namespace) -> int:
    """Run `asyncq show`."""
    ids = ranges.ids("the ids", options.ids, InvalidArgsError)
    found, timelines, whole = common.run(_show(common.dsn_of(options), common.schema_of(options), ids))
    jobs = {job.id: job for job in found}
    shown = [job_id for job_id in dict.fromkeys(ids) if job_id in jobs or timelines[job_id]]
    for place, job_id in enumerate(shown):
        if options.json:
            print(_json(job_id, jobs.get(job_id), timelines[job_id], whole=whole))
        else:
            print("" if place == 0 else "\n", end="")
            _print(job_id, jobs.get(job_id), timelines[job_id], whole=whole)
    missing = sorted(set(ids) - set(shown))
    if missing:
        print(f"asyncq: there are no such jobs: {', '.join(map(str, missing))}", file=sys.stderr)
    if not whole:
        print(UNSEEN, file=sys.stderr)
    return 0


async def _show(dsn: str, schema: str, ids: list[int]) -> tuple[list[Job], dict[int, list[JobEvent]], bool]:
    async with common.connected(dsn, schema, rights.OUTLINES) as connection:
        try:
            found, whole = await inspect.show(connection, schema, ids=ids), True
        except psycopg.errors.InsufficientPrivilege:
            found, whole = await inspect.outline(connection, schema, ids=ids), False
        return found, {job_id: await _timeline(connection, schema, job_id) for job_id in ids}, whole


async def _timeline(connection: psycopg.AsyncConnection[Any], schema: str, job_id: int) -> list[JobEvent]:
    """What is kept of it, as far as the role may read that."""
    for errors in (True, False):
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            return await history.timeline(connection, schema, job_id, errors=errors)
    return []


def _json(job_id: int, job: Job | None, timeline: list[JobEvent], *, whole: bool) -> str:
    events = [event_fields(event) for event in timeline]
    if job is None:
        last = timeline[-1]
        fields = {"id": job_id, "queue": last.queue, "task": last.task, "state": None}
        return table.as_json({**fields, "events": events})
    return table.job_json(job, whole=whole, events=events)


def _print(job_id: int, job: Job | None, timeline: list[JobEvent], *, whole: bool) -> None:
    if job is None:
        last = timeline[-1]
        print(printable(f"job {job_id} ({last.task} of queue {last.queue}) is not there any more"))
    else:
        _print_row(job, whole=whole)
    if timeline:
        print("history")
        for event in timeline:
            print(printable(f"    {event_line(event)}"))


def _print_row(job: Job, *, whole: bool) -> None:
    known = [
        ("job", str(job.id)),
        ("queue", job.queue),
        ("task", job.task),
        ("args", job.args_json if whole else ""),
        ("state", job.state),
        ("attempts", f"{job.attempts} of {job.max_attempts}"),
        ("priority", str(job.priority)),
        ("lease", f"{job.lease.total_seconds():g} s"),
        *((name, _time(getattr(job, name))) for name in ("created_at", "run_at", "attempted_at", "finished_at")),
    ]
    for name, value in known:
        if value:
            print(f"{name.replace('_', ' '):<13} {printable(value)}")
    if whole and job.last_error:
        print("last error")
        for line in job.last_error.strip().splitlines():
            print(f"    {printable(line)}")
