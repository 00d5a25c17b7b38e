"""asyncq itself, with the options it is asked to use."""

import psycopg

from asyncq import Queue, Worker, WorkerOptions
from asyncq.db.migrate import migrate

queue = Queue("bench", schema="bench_asyncq")


@queue.task(name="bench.noop")
async def noop(number: int) -> None:
    pass


class Asyncq:
    """One worker in this process."""

    def __init__(self, dsn: str, concurrency: int) -> None:
        self.name = f"asyncq, {concurrency} slots"
        self._dsn = dsn
        self._concurrency = concurrency

    async def prepare(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as conn:
            await conn.execute("drop schema if exists bench_asyncq cascade")
        await migrate(self._dsn, schema="bench_asyncq")

    async def enqueue(self, count: int) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as conn:
            for number in range(count):
                await noop.defer(conn, number)

    async def enqueue_many(self, count: int) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as conn:
            await noop.defer_many(conn, (noop.args(number) for number in range(count)))

    async def drain(self) -> None:
        await Worker([queue], self._dsn, WorkerOptions(concurrency=self._concurrency, burst=True)).run()
