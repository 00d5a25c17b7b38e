"""A thousand jobs that fail in the same way do not make a thousand lines in the log."""

import logging
import re
from datetime import timedelta

import psycopg
import pytest

from asyncq import Queue, RetryPolicy, WorkerOptions
from asyncq.worker import repeated
from tests.eventually import eventually
from tests.sql import rows
from tests.worker.inside import running_worker

FAILED = "failed, next run in"
DISCARDED = "failed for good and is discarded"
JOBS = 1_000


async def fail(dsn: str, conn: psycopg.AsyncConnection, *, jobs: int) -> list[int]:
    """Let jobs fail twice, the second time for good."""
    queue = Queue(max_attempts=2, retry=RetryPolicy(base=timedelta(milliseconds=10), factor=1.0))

    @queue.task(name="shop.pay")
    async def pay(number: int) -> None:
        raise ValueError(f"number {number}")

    async def all_discarded() -> bool:
        return len(await rows.ids(conn, "discarded")) == jobs

    async with running_worker(queue, dsn, WorkerOptions()):
        ids = await pay.defer_many(conn, [pay.args(number) for number in range(jobs)])
        await eventually(all_discarded, 20, describe="all have failed for good")
    return ids


def more(text: str, what: str) -> list[tuple[int, int]]:
    """The counts and the last jobs of the lines that sum up."""
    pattern = rf"(\d+) more failures of shop\.pay \(ValueError\){what} in the last \d+ s, the last was job (\d+)"
    return [(int(count), int(job)) for count, job in re.findall(pattern, text)]


async def test_the_first_failures_of_a_kind_have_a_line_each_and_the_others_one_together(
    dsn: str, conn: psycopg.AsyncConnection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The stop comes before the end of the window, however slow the machine.
    monkeypatch.setattr(repeated, "WINDOW_SECONDS", 600.0)
    caplog.set_level(logging.INFO, "asyncq.worker")
    ids = await fail(dsn, conn, jobs=JOBS)
    for sort, what in ((FAILED, ""), (DISCARDED, " for good, discarded,")):
        assert caplog.text.count(sort) == repeated.FIRST
        ((count, last),) = more(caplog.text, what)
        assert count == JOBS - repeated.FIRST
        assert last in ids
    assert len(caplog.records) < 30


async def test_each_kind_is_summed_up_when_its_window_ends(
    dsn: str, conn: psycopg.AsyncConnection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated, "WINDOW_SECONDS", 0.5)
    caplog.set_level(logging.INFO, "asyncq.worker")
    queue = Queue(max_attempts=1)

    @queue.task(name="shop.pay")
    async def pay(number: int) -> None:
        raise (ValueError if number < 100 else KeyError)(number)

    def in_the_log() -> int:
        together = re.findall(r"(\d+) more failures of shop.pay \(\w+\) for good", caplog.text)
        return caplog.text.count(DISCARDED) + sum(map(int, together))

    async with running_worker(queue, dsn, WorkerOptions()):
        await pay.defer_many(conn, [pay.args(number) for number in range(100)])
        await eventually(lambda: DISCARDED in caplog.text, describe="the first window has begun")
        await pay.defer_many(conn, [pay.args(number) for number in range(100, 200)])
        await eventually(lambda: in_the_log() == 200, 10, describe="while it runs, all are in the log")


async def test_a_verbose_worker_logs_each(
    dsn: str, conn: psycopg.AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "asyncq.worker")
    await fail(dsn, conn, jobs=20)
    assert caplog.text.count(FAILED) == caplog.text.count(DISCARDED) == 20
    assert "more failures" not in caplog.text
