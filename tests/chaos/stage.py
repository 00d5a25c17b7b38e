"""A server, workers with a supervisor, and producers; and a record of each change of a job, kept by the server."""

import random
from pathlib import Path

import anyio
import psycopg

from asyncq.db.migrate import migrate
from tests.chaos import app
from tests.chaos.fleet import Fleet
from tests.servers import Postgres
from tests.truth import TruthLog

RECORD = """
    create table promised (job_id bigint primary key, kind text not null);
    create table moves (
        seq bigint generated always as identity primary key, job_id bigint, was text, became text, attempts integer,
        leased_until timestamptz, at timestamptz not null default clock_timestamp()
    );
    create function moved() returns trigger language plpgsql as $$
    begin
        if tg_op = 'DELETE' then
            insert into public.moves (job_id, was, became, attempts, leased_until)
            values (old.id, old.state, 'deleted', old.attempts, old.leased_until);
        elsif old.state <> new.state then
            insert into public.moves (job_id, was, became, attempts, leased_until)
            values (old.id, old.state, new.state, new.attempts, old.leased_until);
        end if;
        return null;
    end $$;
    create trigger moved after update or delete on asyncq.jobs for each row execute function moved();
"""


class Stage:
    """Where it happens. What fails because the server is away is tried again by whoever does it."""

    def __init__(self, postgres: Postgres, chance: random.Random, logs: Path) -> None:
        self.postgres = postgres
        self.chance = chance
        self.dsn = postgres.create_database(migrated=False)
        arguments = ("tests.chaos.app", "--concurrency", "25", "--grace", "2", "--poll", "5")
        self.fleet = Fleet(self.dsn, arguments, logs)
        self.withdrawn: set[int] = set()
        self.deadlocks = 0

    async def prepare(self) -> None:
        await migrate(self.dsn)
        log = TruthLog(self.dsn)
        await log.create()
        await log.close()
        async with await self.connect() as conn:
            await conn.execute(RECORD.encode())

    async def connect(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self.dsn, autocommit=True, application_name="chaos")

    async def produce(self) -> None:
        """Promise jobs in transactions, and take a quarter of these back."""
        kinds, weights = list(app.WEIGHTS), list(app.WEIGHTS.values())
        while True:
            ids: list[int] = []
            keep = self.chance.random() < 0.75
            try:
                async with await psycopg.AsyncConnection.connect(self.dsn, application_name="producer") as conn:
                    for kind in self.chance.choices(kinds, weights, k=self.chance.randint(1, 5)):
                        own = app.act.options(max_attempts=app.DOOMED_ATTEMPTS) if kind == "doom" else app.act
                        ids.append((await own.defer(conn, kind)).id)
                        await conn.execute("insert into promised values (%s, %s)", (ids[-1], kind))
                    await anyio.sleep(self.chance.uniform(0.0, 0.05))
                    if not keep:
                        await conn.rollback()
            except psycopg.OperationalError:
                # Whether they were committed, the table of what was promised knows.
                await anyio.sleep(0.1)
                continue
            if not keep:
                self.withdrawn.update(ids)

    async def note_deadlocks(self) -> None:
        """Look before a restart: a crash of the server forgets them."""
        async with await self.connect() as conn:
            cursor = await conn.execute("select deadlocks from pg_stat_database where datname = current_database()")
            row = await cursor.fetchone()
        self.deadlocks += row[0] if row else 0

    async def waiting(self) -> tuple[int, int, float]:
        """How many jobs are left, how many of them are due, and how long ago one last changed, in seconds."""
        async with await self.connect() as conn:
            cursor = await conn.execute("""
                select count(*), count(*) filter (where state = 'available' and run_at <= now()),
                    (select extract(epoch from now() - max(at))::float8 from moves)
                from asyncq.jobs where state in ('available', 'running')
            """)
            row = await cursor.fetchone()
        assert row is not None
        return row[0], row[1], row[2] or 0.0
