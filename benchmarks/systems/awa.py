# /// script
# requires-python = ">=3.11"
# dependencies = ["awa-pg==0.6.9", "uvloop"]
#
# [tool.benchmarks]
# title = "awa"
# store = "postgresql"
# default = { loop = "asyncio", workers = 4, start = {} }
# tuned = [
#   { loop = "uvloop", workers = 100, start = { poll_interval_ms = 50 } },
#   { loop = "uvloop", workers = 500, start = { poll_interval_ms = 50 } },
#   { loop = "uvloop", workers = 1000, start = { poll_interval_ms = 50 } },
# ]
# ///
"""awa: its core, and with it the connections and the claims, is Rust. The default is the four workers of its manual."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient

from benchmarks.systems.protocol import handled, serve

# Its statistics leave out what runs under a receipt and take long to ask for, and its view of all jobs takes seconds:
# what was put in less what was claimed, by the sequences that number them, and claims less closures. A slot of either
# ring is emptied once all of its claims are closed, together with their closures.
REMAINING = """
select (
    (
        select coalesce(sum(pg_sequence_last_value(format('awa.%I', e.seq_name)::regclass)), 0)
            - coalesce(sum(pg_sequence_last_value(format('awa.%I', c.seq_name)::regclass)), 0)
        from awa.queue_enqueue_heads e left join awa.queue_claim_heads c using (queue, priority, enqueue_shard)
    )
    + (select count(*) from awa.leases) + (select count(*) from awa.lease_claims)
    + (select coalesce(sum(claimed_count), 0) from awa.lease_claim_batches)
    - (select count(*) from awa.lease_claim_closures)
    - (select coalesce(sum(closed_count), 0) from awa.lease_claim_closure_batches)
)::bigint as jobs
"""


@dataclass
class Noop:
    number: int


@dataclass
class Timed:
    asked_at: float


class Awa:
    def __init__(self, dsn: str, settings: dict[str, Any]) -> None:
        self._dsn = dsn
        self._workers = settings["workers"]
        self._options = settings["start"]

    async def prepare(self) -> None:
        client = AsyncClient(self._dsn)
        await client.migrate()
        await client.install_queue_storage()
        await client.close()

    async def open(self) -> None:
        self._client = AsyncClient(self._dsn)

    async def enqueue(self, count: int) -> None:
        for number in range(count):
            await self._client.insert(Noop(number), queue="bench")

    async def enqueue_timed(self) -> None:
        await self._client.insert(Timed(time.perf_counter()), queue="bench")

    async def enqueue_many(self, count: int) -> None:
        await self._client.enqueue_many_copy([Noop(number) for number in range(count)], queue="bench")

    async def remaining(self) -> int:
        transaction = await self._client.transaction()
        row = await transaction.fetch_one(REMAINING)
        await transaction.rollback()
        return int(row["jobs"])

    async def work(self, stop: asyncio.Event) -> None:
        client = AsyncClient(self._dsn)

        @client.task(Noop, queue="bench")
        async def noop(job: Any) -> None:  # noqa: ARG001 - its signature
            handled.count()

        @client.task(Timed, queue="bench")
        async def timed(job: Any) -> None:
            handled.timed(job.args.asked_at)

        await client.start([("bench", self._workers)], **self._options)
        await stop.wait()
        await client.shutdown(timeout_ms=5_000)
        await client.close()


if __name__ == "__main__":
    serve(Awa)
