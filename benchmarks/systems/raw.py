"""What is physically there: the barest statements on a table like asyncq's, without a queue around them."""

import psycopg

from asyncq.db.migrate import migrate


class Raw:
    """Insert, and claim and delete in two statements a batch, on one connection."""

    name = "raw statements"

    def __init__(self, dsn: str, batch: int = 100) -> None:
        self._dsn = dsn
        self._batch = batch

    async def prepare(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as conn:
            await conn.execute("drop schema if exists bench_raw cascade")
        await migrate(self._dsn, schema="bench_raw")

    async def enqueue(self, count: int) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as conn:
            for number in range(count):
                await conn.execute(
                    "insert into bench_raw.jobs (queue, task, args)"
                    " values ('bench', 'noop', jsonb_build_object('number', %s::int)) returning id",
                    (number,),
                )

    async def enqueue_many(self, count: int) -> None:
        async with (
            await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as conn,
            conn.cursor().copy("copy bench_raw.jobs (queue, task, args) from stdin") as copy,
        ):
            for number in range(count):
                await copy.write_row(("bench", "noop", f'{{"number": {number}}}'))

    async def drain(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, prepare_threshold=0) as conn:
            while True:
                cursor = await conn.execute(
                    """
                    with next as materialized (
                        select ctid from bench_raw.jobs
                        where state = 'available' and queue = 'bench' and priority = 0 and run_at <= now()
                        order by run_at, id limit %s for update skip locked
                    )
                    update bench_raw.jobs set state = 'running', attempts = 1, locked_by = 'raw', lease_token = 1,
                        leased_until = now() + interval '60 s', attempted_at = now()
                    where ctid = any(array(select ctid from next)) returning id, args::text
                    """,
                    (self._batch,),
                    binary=True,
                )
                rows = await cursor.fetchall()
                if not rows:
                    return
                await conn.execute(
                    "delete from bench_raw.jobs where id = any(%s) and lease_token = 1", ([row[0] for row in rows],)
                )
