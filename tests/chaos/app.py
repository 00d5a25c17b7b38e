"""The jobs of the chaos program. What they do is drawn by whoever defers them; each writes into the truth log."""

import asyncio
import contextlib
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import psycopg

from asyncq import Cancel, Queue, RetryPolicy, Snooze, current_job
from tests.truth import TruthLog

LEASE = timedelta(seconds=3)
DOOMED_ATTEMPTS = 3

log = TruthLog(os.environ.get("ASYNCQ_DSN", ""))
work = Queue(
    "chaos",
    lease=LEASE,
    retry=RetryPolicy(base=timedelta(seconds=0.05), factor=1.5, longest=timedelta(seconds=1)),
    max_attempts=100,
)


async def note(event: str, run: str) -> None:
    """Write into the log, also when the server is away for a while: perhaps twice, when the answer was lost."""
    job = current_job()
    while True:
        try:
            await log.write(job.id, job.attempts, event, run)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            await log.close()
            await asyncio.sleep(0.1)
        else:
            return


async def succeed() -> None:
    await asyncio.sleep(random.uniform(0.0, 0.2))


async def fail_at_first() -> None:
    await asyncio.sleep(0.01)
    if current_job().attempts <= 2:
        raise ValueError("not yet")


async def snooze() -> None:
    if random.random() < 0.5:
        raise Snooze(timedelta(seconds=random.uniform(0.0, 1.0)))


async def cancel() -> None:
    raise Cancel("not wanted")


async def doom() -> None:
    raise ValueError("never")


async def outlast() -> None:
    """Take longer than a lease."""
    await asyncio.sleep(random.uniform(1.0, 2.0) * LEASE.total_seconds())


async def block() -> None:
    """Stand in the way of everybody, now and then for longer than a lease."""
    stand_still(random.uniform(0.1, 1.5) * LEASE.total_seconds())


def stand_still(seconds: float) -> None:
    time.sleep(seconds)


async def crash() -> None:
    if current_job().attempts == 1:
        os._exit(137)


ACTS: dict[str, Callable[[], Awaitable[None]]] = {
    "succeed": succeed,
    "fail at first": fail_at_first,
    "snooze": snooze,
    "cancel": cancel,
    "doom": doom,
    "outlast": outlast,
    "block": block,
    "crash": crash,
}
WEIGHTS = {
    "succeed": 60,
    "fail at first": 10,
    "snooze": 10,
    "cancel": 5,
    "doom": 5,
    "outlast": 5,
    "block": 1,
    "crash": 1,
}
ENDS = {"cancel": "cancelled", "doom": "discarded"}
"""What becomes of the row, if it is not deleted."""


@work.task
async def act(kind: str) -> None:
    run = secrets.token_hex(8)
    await note("start", run)
    try:
        await ACTS[kind]()
    except BaseException:
        with contextlib.suppress(psycopg.Error):
            await log.write(current_job().id, current_job().attempts, "end", run)
        raise
    await note("end", run)
