"""`asyncq defer TASK --args JSON`: put a job in from a shell or from the system's cron."""

import argparse
import json
import sys
from datetime import datetime
from typing import Any

from asyncq import ranges
from asyncq.cli import common
from asyncq.db import defer, rights
from asyncq.errors import InvalidArgsError, UnknownTaskError
from asyncq.queue import Queue
from asyncq.worker.registry import tasks_of

__all__ = ["add"]


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "defer",
        help="put a job in",
        description="Put a job in, and print its id. With --module the task's own options apply and its arguments are"
        " validated now; without, the worker validates them.",
        allow_abbrev=False,
    )
    parser.add_argument("task", help="the task's name, such as myapp.tasks.send_welcome")
    parser.add_argument("--args", default="{}", metavar="JSON", help="the arguments, an object keyed by parameter name")
    parser.add_argument("--module", metavar="MODULE[:NAME]", help="the module that registers the task")
    parser.add_argument(
        "--queue", metavar="NAME", help="the queue (default: the task's own with --module, else 'default')"
    )
    parser.add_argument("--delay", type=common.seconds, metavar="SECONDS", help="start this much later")
    parser.add_argument(
        "--run-at", type=_time, metavar="TIME", help="start at this time, such as 2030-01-31T08:00:00+01:00"
    )
    parser.add_argument("--priority", type=int, metavar="N", help="higher runs first (default: 0)")
    parser.add_argument("--max-attempts", type=int, metavar="N", help="runs before it is discarded (default: 10)")
    common.add_database(parser)
    parser.set_defaults(run=run)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a time such as 2030-01-31T08:00:00+01:00, not {text!r}") from None
    if time.utcoffset() is None:
        raise argparse.ArgumentTypeError(f"must have a time zone, such as {text}+00:00")
    return time


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    dsn = common.dsn_of(options)
    try:
        given: Any = json.loads(options.args)
    except (ValueError, RecursionError) as error:
        raise InvalidArgsError(f"--args must be a JSON object: {error}") from None
    if not isinstance(given, dict):
        raise InvalidArgsError(f"--args must be a JSON object keyed by parameter name, not {options.args:.100}")
    ranges.name("the task", options.task, InvalidArgsError)
    print(common.run(_defer(dsn, options, given)))  # pyright: ignore[reportUnknownArgumentType] - any JSON
    return 0


async def _defer(dsn: str, options: argparse.Namespace, given: object) -> int:
    chosen = {
        name: value
        for name in ("delay", "run_at", "priority", "queue", "max_attempts")
        if (value := getattr(options, name)) is not None
    }
    if options.module is None:
        queue = Queue(chosen.pop("queue", "default"), schema=common.schema_of(options))
        # A stand-in for a task that is not here: its options are checked, its arguments are not.
        bound = queue.task(name=options.task)(_unknown).options(**chosen)
        ranges.storable("--args", given, InvalidArgsError)
        text = options.args
    else:
        queues = common.queues_of([options.module])
        common.schema_of(options, queues)
        found = tasks_of(queues).get(options.task)
        if found is None:
            known = ", ".join(tasks_of(queues)) or "none"
            raise UnknownTaskError(f"there is no task {options.task!r} in {options.module!r}; it has {known}")
        bound = found.options(**chosen)
        args, kwargs = bound.arguments.load(options.args)
        text = bound.arguments.dump(args, kwargs)
    async with common.connected(dsn, bound.schema, rights.DEFERS) as connection:
        job_id, _ = await defer.one(connection, bound.schema, bound.stored, text)
    if options.module is None and options.queue is None:
        print("asyncq: put into queue 'default': give --queue or --module if it is another", file=sys.stderr)
    return job_id


def _unknown() -> None:
    """Stands in for a handler that lives elsewhere."""
