"""`python -m tests.chaos.long_life`: does a worker grow over 300,000 jobs, many failing, and 200 reconnections?"""

import argparse
import sys
import tempfile
from pathlib import Path

import anyio
import psycopg

from asyncq.db.migrate import migrate
from tests.chaos import lasting
from tests.chaos.fleet import Fleet
from tests.eventually import eventually
from tests.servers import DEFAULT_MAJOR, Servers

PARTS = 100
LOOKS = """
    create table public.looks (
        number integer primary key, mib float8, objects integer, tasks integer, files integer, backends integer
    )
"""


async def one_part(conn: psycopg.AsyncConnection, part: int, jobs: int) -> None:
    """A part of the jobs, with two reconnections in the middle of them."""
    await lasting.nothing.defer_many(conn, (lasting.nothing.args(number) for number in range(jobs)))
    await lasting.failing.defer_many(conn, (lasting.failing.args(number) for number in range(jobs // 10)))
    await lasting.cancelling.defer_many(conn, (lasting.cancelling.args(number) for number in range(jobs // 60)))
    for _ in range(2):
        await anyio.sleep(0.1)
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'asyncq%'"
        )
    await lasting.look.defer(conn, part)

    async def done() -> bool:
        cursor = await conn.execute(
            "select not exists (select from asyncq.jobs where state in ('available', 'running'))"
        )
        row = await cursor.fetchone()
        return bool(row and row[0])

    await eventually(done, 120, describe=f"part {part} is done")


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.long_life", description=__doc__)
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--postgres", type=int, default=DEFAULT_MAJOR, metavar="MAJOR")
    options = parser.parse_args()
    servers = Servers()
    dsn = servers.own(options.postgres).create_database(migrated=False)
    await migrate(dsn)
    arguments = ("tests.chaos.lasting", "--cleanup", "1", "--poll", "5")
    fleet = Fleet(dsn, arguments, Path(tempfile.mkdtemp(prefix="asyncq-long-life-")))
    try:
        fleet.start(1)
        await fleet.workers[0].wait_ready()
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await conn.execute(LOOKS.encode())
            for part in range(PARTS):
                await one_part(conn, part, options.jobs // PARTS)
            cursor = await conn.execute("select * from public.looks order by number")
            looks = await cursor.fetchall()
    finally:
        fleet.close()
        servers.close()
    if fleet.codes or len(looks) != PARTS:
        sys.stdout.write(
            f"the worker was looked at {len(looks)} times of {PARTS}, and ended with {dict(fleet.codes)}\n"
        )
        return 1
    sys.stdout.write(
        "| of the jobs | memory, MiB | objects | tasks | files | connections |\n|---|---:|---:|---:|---:|---:|\n"
    )
    for part in (PARTS // 10 - 1, PARTS // 2 - 1, PARTS - 1):
        _, mib, objects, tasks, files, backends = looks[part]
        share = (part + 1) / PARTS
        sys.stdout.write(f"| {share:.0%} | {mib:.1f} | {objects:,} | {tasks} | {files} | {backends} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
