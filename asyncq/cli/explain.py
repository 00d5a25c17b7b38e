"""`asyncq explain ID` and `asyncq workers`: why a job does not run, and who could run it."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from asyncq.cli import common
from asyncq.cli.log import printable
from asyncq.db import rights, workers
from asyncq.queue import Queue
from asyncq.reason import Explanation, WorkerStatus

__all__ = ["add"]


def add(commands: Any) -> None:
    """Declare the commands."""
    explaining = commands.add_parser(
        "explain",
        help="say why a job does not run",
        description="Say why a job does not run, or where it stands, and what can be done.",
        allow_abbrev=False,
    )
    explaining.add_argument("ids", nargs="+", type=int, metavar="ID", help="the job's id")
    listing = commands.add_parser(
        "workers",
        help="list the workers",
        description="List the workers with what they serve and how many jobs they run. One that was killed is listed as"
        " silent until a worker starts a day later.",
        allow_abbrev=False,
    )
    for parser, run in ((explaining, run_explain), (listing, run_workers)):
        parser.add_argument("--json", action="store_true", help="print a JSON object a line")
        common.add_database(parser)
        parser.set_defaults(run=run)


def run_explain(options: argparse.Namespace) -> int:
    """Run `asyncq explain`."""
    queue = Queue(schema=common.schema_of(options))
    for found in common.run(_explain(common.dsn_of(options), queue, options.ids)):
        if options.json:
            print(_json(found))
            continue
        about = f" ({found.facts.task} of queue {found.facts.queue})" if found.facts else ""
        print(printable(f"job {found.job_id}{about}: {found}"))
    return 0


async def _explain(dsn: str, queue: Queue, ids: Sequence[int]) -> list[Explanation]:
    async with common.connected(dsn, queue.schema, rights.EXPLAINS) as connection:
        return [await queue.explain(connection, job_id) for job_id in ids]


def run_workers(options: argparse.Namespace) -> int:
    """Run `asyncq workers`."""
    found = common.run(_workers(common.dsn_of(options), common.schema_of(options)))
    for each in found:
        if options.json:
            print(_json(each))
            continue
        state = "alive" if each.alive else "silent"
        if each.stopping_at is not None:
            state += ", stopping"
        seen = each.seen_at.isoformat(sep=" ", timespec="seconds")
        print(
            printable(
                f"{each.id}  {state}, seen {seen}  {each.running} of {each.concurrency} slots"
                f"  {', '.join(each.queues)}  {len(each.tasks)} tasks  asyncq {each.release}"
            )
        )
    if not found and not options.json:
        print("no workers")
    return 0


async def _workers(dsn: str, schema: str) -> list[WorkerStatus]:
    async with common.connected(dsn, schema, rights.EXPLAINS) as connection:
        return await workers.listed(connection, schema)


def _json(value: Explanation | WorkerStatus) -> str:
    return json.dumps(asdict(value), default=str)
