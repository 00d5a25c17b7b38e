"""`asyncq run-now`, `asyncq cancel` and `asyncq purge`: change what waits, and delete what has ended."""

import argparse
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from asyncq.cli import common, sure
from asyncq.cli.log import printable
from asyncq.db import inspect, rights
from asyncq.job import JobState
from asyncq.queue import Queue, purged

__all__ = ["add"]

COUNTED = 100_000
"""Where `inspect.ended` stops."""


def add(commands: Any) -> None:
    """Declare the commands."""
    for name, act, needed, short, reason in (
        (
            "run-now",
            Queue.run_now,
            rights.HURRIES,
            "let jobs run now that wait for a later time",
            "not waiting for a later time",
        ),
        ("cancel", Queue.cancel, rights.REPLAYS, "cancel jobs that wait", "not waiting"),
    ):
        parser = commands.add_parser(
            name,
            help=short,
            description=f"{short.capitalize()}, and print their ids. Those that a worker runs are left alone.",
            allow_abbrev=False,
        )
        parser.add_argument("queue", help="the queue's name")
        sure.add_ids(parser, nargs="+", what="which ones")
        sure.add_sure(parser)
        common.add_database(parser)
        parser.set_defaults(run=_running(name, act, needed, f"{reason} in this queue"))
    parser = commands.add_parser(
        "purge",
        help="delete jobs that ended",
        description="Delete discarded and cancelled jobs for good, and print how many.",
        allow_abbrev=False,
    )
    parser.add_argument("queue", help="the queue's name")
    parser.add_argument("--state", choices=["discarded", "cancelled"], help="only such (default: both)")
    parser.add_argument(
        "--older-than",
        type=common.seconds,
        default=timedelta(0),
        metavar="SECONDS",
        help="only those that ended so long ago",
    )
    sure.add_sure(parser)
    common.add_database(parser)
    parser.set_defaults(run=run_purge)


def _running(
    name: str, act: Callable[..., Any], needed: Sequence[rights.Right], reason: str
) -> Callable[[argparse.Namespace], int]:
    async def change(dsn: str, queue: Queue, ids: list[int]) -> list[int]:
        async with common.connected(dsn, queue.schema, needed) as connection:
            return await act(queue, connection, ids)

    def run(options: argparse.Namespace) -> int:
        queue = Queue(options.queue, schema=common.schema_of(options))
        ids = sure.ids_of(options)
        dsn = common.dsn_of(options)
        what = f"{name} {about(len(set(ids)))} of queue {printable(queue.name)}"
        if options.dry_run:
            print(f"would {what}")
        elif not sure.asks(options, ids) or sure.agreed(options, what):
            sure.report(common.run(change(dsn, queue, ids)), ids, reason)
        return 0

    return run


def run_purge(options: argparse.Namespace) -> int:
    """Run `asyncq purge`."""
    queue = Queue(options.queue, schema=common.schema_of(options))
    state, age = purged("purge", options.state, options.older_than)
    dsn = common.dsn_of(options)
    count = common.run(count_ended(dsn, queue, state, age, rights.PURGES))
    what = f"delete {about(count)} of queue {printable(queue.name)}"
    if options.dry_run:
        print(f"would {what}")
    elif sure.agreed(options, what):
        print(common.run(_purge(dsn, queue, state, age)))
    return 0


def about(count: int) -> str:
    """Say how many jobs there are, as far as `count_ended` counts."""
    return f"{count:,}{' or more' if count >= COUNTED else ''} job{'' if count == 1 else 's'}"


async def count_ended(
    dsn: str, queue: Queue, state: JobState | None, age: timedelta, needed: Sequence[rights.Right]
) -> int:
    """Count what ended so long ago, up to a limit."""
    async with common.connected(dsn, queue.schema, needed) as connection:
        return await inspect.ended(connection, queue.schema, queue=queue.name, state=state, older_than=age)


async def _purge(dsn: str, queue: Queue, state: JobState | None, age: timedelta) -> int:
    async with common.connected(dsn, queue.schema, rights.PURGES) as connection:
        return await queue.purge(connection, state=state, older_than=age)
