"""`asyncq status`: how many jobs of each queue stand where, once or again and again."""

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio

from asyncq import ranges
from asyncq.cli import common, table
from asyncq.db import inspect, rights
from asyncq.errors import ConfigurationError
from asyncq.job import QueueStats

__all__ = ["add"]

OFTEN, SELDOM = timedelta(seconds=0.1), timedelta(days=1)

CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "status",
        help="count the jobs of each queue",
        description="Show how many jobs of each queue are due, scheduled, running, discarded and cancelled, and how"
        f" long the first due one has waited. Counting stops at {QueueStats.LIMIT:,}.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--queue", action="append", metavar="NAME", help="only this one (may be repeated; default: all)"
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=common.seconds,
        const=timedelta(seconds=2),
        metavar="SECONDS",
        help="look again this often, until Ctrl-C (default: 2)",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")
    common.add_database(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    queues = None
    if options.queue:
        queues = [ranges.name("--queue", each, ConfigurationError) for each in dict.fromkeys(options.queue)]
    if options.watch is not None:
        ranges.duration("--watch", options.watch, ConfigurationError, shortest=OFTEN, longest=SELDOM)
    common.run(_status(common.dsn_of(options), common.schema_of(options), queues, options))
    return 0


async def _status(dsn: str, schema: str, queues: list[str] | None, options: argparse.Namespace) -> None:
    async with common.connected(dsn, schema, rights.COUNTS) as connection:
        while True:
            found = await inspect.stats(connection, schema, queues=queues)
            if options.watch is not None and sys.stdout.isatty() and not options.json:
                print(CLEAR, end="")
            _show(found, as_json=options.json)
            sys.stdout.flush()
            if options.watch is None:
                return
            await anyio.sleep(options.watch.total_seconds())


NUMBERS = ("due", "scheduled", "running", "discarded", "cancelled")


def _show(found: Sequence[QueueStats], *, as_json: bool) -> None:
    if as_json:
        for each in found:
            fields = {name: getattr(each, name) for name in ("queue", "oldest_due_seconds", *NUMBERS)}
            print(table.as_json(fields))
    elif found:
        table.show(
            ("queue", "due", "oldest", *NUMBERS[1:]),
            [
                (each.queue, _count(each.due), _age(each.oldest_due_seconds),
                 *(_count(getattr(each, name)) for name in NUMBERS[1:]))
                for each in found
            ],
            numbers=1,
        )  # fmt: skip
    else:
        print("no jobs in any queue")


def _count(number: int) -> str:
    return f"{number}+" if number >= QueueStats.LIMIT else str(number)


def _age(seconds: float | None) -> str:
    """Write an age with its largest unit.

    >>> _age(0.4), _age(125), _age(86_400 * 3)
    ('0 s', '2 min', '3 d')
    """
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
