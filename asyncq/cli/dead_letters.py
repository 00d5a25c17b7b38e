"""`asyncq discarded QUEUE` and `asyncq replay QUEUE`: look at dead letters, and put them back."""

import argparse
from datetime import timedelta
from typing import Any

from asyncq.cli import common, sure
from asyncq.cli.log import printable
from asyncq.cli.operate import about, count_ended
from asyncq.db import rights
from asyncq.job import Job, JobState
from asyncq.queue import Queue

__all__ = ["add"]


def add(commands: Any) -> None:
    """Declare the commands."""
    listing = commands.add_parser(
        "discarded", help="list dead letters", description="List a queue's dead letters, the latest first.",
        allow_abbrev=False,
    )  # fmt: skip
    listing.add_argument("queue", help="the queue's name")
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="how many at most (default: %(default)s)")
    listing.add_argument("--errors", action="store_true", help="show the whole last error of each")
    common.add_database(listing)
    listing.set_defaults(run=run_discarded)
    replaying = commands.add_parser(
        "replay",
        help="put dead letters back",
        description="Put discarded jobs back with all their attempts, and print their ids. Ids may be those of"
        " cancelled jobs too.",
        allow_abbrev=False,
    )
    replaying.add_argument("queue", help="the queue's name")
    sure.add_ids(replaying, nargs="*", what="which ones (default: all discarded jobs)")
    sure.add_sure(replaying)
    common.add_database(replaying)
    replaying.set_defaults(run=run_replay)


def run_discarded(options: argparse.Namespace) -> int:
    """Run `asyncq discarded`."""
    queue = Queue(options.queue, schema=common.schema_of(options))
    found = common.run(_discarded(common.dsn_of(options), queue, options.limit))
    for job in found:
        error = (job.last_error or "").strip()
        last = error.splitlines()[-1] if error else ""
        when = job.finished_at.isoformat(sep=" ", timespec="seconds") if job.finished_at else ""
        print(printable(f"{job.id}  {when}  {job.task}({job.args_json})  attempts {job.attempts}  {last}"))
        if options.errors:
            for line in error.splitlines():
                print(f"    {printable(line)}")
    if not found:
        print(f"no discarded jobs in queue {printable(queue.name)}")
    return 0


async def _discarded(dsn: str, queue: Queue, limit: int) -> list[Job]:
    async with common.connected(dsn, queue.schema, rights.LISTS) as connection:
        return await queue.discarded(connection, limit=limit)


def run_replay(options: argparse.Namespace) -> int:
    """Run `asyncq replay`."""
    queue = Queue(options.queue, schema=common.schema_of(options))
    ids = sure.ids_of(options) if options.ids else None
    dsn = common.dsn_of(options)
    if not _agreed(options, dsn, queue, ids):
        return 0
    replayed = common.run(_replay(dsn, queue, ids))
    sure.report(replayed, ids or (), "not discarded or cancelled jobs of this queue")
    if not replayed:
        print(f"nothing to replay in queue {printable(queue.name)}")
    return 0


def _agreed(options: argparse.Namespace, dsn: str, queue: Queue, ids: list[int] | None) -> bool:
    """Say whether to go on. All are replayed without a question where there is no terminal: scripts do that."""
    asked = options.dry_run or (sure.can_ask() if ids is None else sure.asks(options, ids))
    if not asked:
        return True
    if ids is None:
        what = about(common.run(count_ended(dsn, queue, JobState.DISCARDED, timedelta(0), rights.REPLAYS)))
    else:
        what = about(len(set(ids)))
    what = f"replay {what} of queue {printable(queue.name)}"
    if options.dry_run:
        print(f"would {what}")
        return False
    return sure.agreed(options, what)


async def _replay(dsn: str, queue: Queue, ids: list[int] | None) -> list[int]:
    async with common.connected(dsn, queue.schema, rights.REPLAYS) as connection:
        return await queue.replay(connection, ids)
