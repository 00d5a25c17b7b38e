"""`python -m tests.chaos.outages`: is a worker still woken by notifications after outages, long and many?

It polls once a minute only. After each outage it is given five seconds, and then a job, which is to start at once; one
of its connections listens, it is the same process, and it warned of the outage once. Then its listening connection is
ended every few seconds for ten minutes, and it never has more connections than before.
"""

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import psycopg

from asyncq.db.migrate import migrate
from tests.chaos import steady
from tests.chaos.fleet import Fleet
from tests.eventually import eventually
from tests.servers import DEFAULT_MAJOR, Postgres, Servers

POLL_SECONDS = 60
PEACE_SECONDS = 5.0
"""Between an outage's end and the next job."""

AT_ONCE_SECONDS = 2.0
"""From the call of `defer` until the job is done, which takes 20 ms."""

TROUBLE = re.compile(r" WARNING asyncq\.worker: (.*): trouble with the database")


class Subject:
    """A server, and a worker on it."""

    def __init__(self, postgres: Postgres, logs: Path, away_seconds: float) -> None:
        self.postgres = postgres
        self.dsn = postgres.create_database(migrated=False)
        self.fleet = Fleet(self.dsn, ("tests.chaos.steady", "--poll", str(POLL_SECONDS)), logs)
        self.away_seconds = away_seconds

    async def connect(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self.dsn, autocommit=True, application_name="outages")

    def warnings(self) -> Counter[str]:
        """How often each loop has warned of trouble so far."""
        return Counter(TROUBLE.findall(self.fleet.workers[0].stderr))

    async def backends(self, conn: psycopg.AsyncConnection) -> tuple[int, int]:
        """The worker's connections, and those of them that listen."""
        cursor = await conn.execute(
            "select count(*), count(*) filter (where application_name like 'asyncq listen %')"
            " from pg_stat_activity where application_name like 'asyncq %'"
        )
        row = await cursor.fetchone()
        assert row is not None
        return row[0], row[1]

    async def job(self, conn: psycopg.AsyncConnection) -> float:
        """Seconds that a job takes from the call of `defer` until it is done."""

        async def done() -> bool:
            cursor = await conn.execute("select count(*) from asyncq.jobs")
            return await cursor.fetchone() == (0,)

        began = time.monotonic()
        await steady.wait.defer(conn)
        await eventually(done, 2 * POLL_SECONDS, describe="the job is done")
        return time.monotonic() - began


async def end_listener(subject: Subject) -> None:
    async with await subject.connect() as conn:
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'asyncq listen %'"
        )


async def restart(subject: Subject) -> None:
    await anyio.to_thread.run_sync(subject.postgres.server.restart)


async def stay_away(subject: Subject) -> None:
    await anyio.to_thread.run_sync(subject.postgres.server.halt)
    await anyio.sleep(subject.away_seconds)
    await anyio.to_thread.run_sync(subject.postgres.server.resume)


OUTAGES: dict[str, Callable[[Subject], Coroutine[Any, Any, None]]] = {
    "its listening connection is ended": end_listener,
    "the server is restarted": restart,
    "the server is away for {:g} s": stay_away,
}


async def survive(subject: Subject, outage: Callable[[Subject], Coroutine[Any, Any, None]]) -> tuple[str, bool]:
    """What was seen after one outage, and whether it is right."""
    before = subject.warnings()
    await outage(subject)
    await anyio.sleep(PEACE_SECONDS)
    async with await subject.connect() as conn:
        seconds = await subject.job(conn)
        _, listening = await subject.backends(conn)
    warned = subject.warnings() - before
    most = max(warned.values(), default=0)
    right = seconds < AT_ONCE_SECONDS and listening == 1 and warned["listening"] == 1 and most == 1
    return f"{seconds * 1e3:,.0f} ms | {listening} | {most}", right


async def flap(subject: Subject, seconds: float, every: float) -> tuple[str, bool]:
    """End the listening connection again and again: how often, and the most connections seen."""
    ends = time.monotonic() + seconds
    times = most = most_listening = 0
    fewest_listening = 1
    async with await subject.connect() as conn:
        before, _ = await subject.backends(conn)
        while time.monotonic() < ends:
            await end_listener(subject)
            times += 1
            again = time.monotonic() + every
            while time.monotonic() < again:
                await anyio.sleep(0.1)
                backends, listening = await subject.backends(conn)
                most, most_listening = max(most, backends), max(most_listening, listening)
            _, listening = await subject.backends(conn)
            fewest_listening = min(fewest_listening, listening)
        latency = await subject.job(conn)
        after, listening = await subject.backends(conn)
    right = (
        most == before == after and most_listening == fewest_listening == listening == 1 and latency < AT_ONCE_SECONDS
    )
    found = (
        f"connections before {before}, at most {most}, after {after}; listening at most {most_listening}, and"
        f" {fewest_listening} at least before each end; a job after the last takes {latency * 1e3:,.0f} ms"
    )
    return f"its listening connection ended {times} times in {seconds:,.0f} s: {found}", right


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.outages", description=__doc__)
    parser.add_argument("--away", type=float, default=90.0, metavar="SECONDS", help="of the server (default: 90)")
    parser.add_argument("--flapping", type=float, default=600.0, metavar="SECONDS", help="in all (default: 600)")
    parser.add_argument("--every", type=float, default=3.0, metavar="SECONDS", help="an end (default: 3)")
    parser.add_argument("--postgres", type=int, default=DEFAULT_MAJOR, metavar="MAJOR")
    options = parser.parse_args()
    servers = Servers()
    logs = Path(tempfile.mkdtemp(prefix="asyncq-outages-"))
    subject = Subject(servers.own(options.postgres), logs, options.away)
    wrong: list[str] = []
    try:
        await migrate(subject.dsn)
        subject.fleet.start(1)
        await subject.fleet.workers[0].wait_ready()
        sys.stdout.write("| outage | a job takes | listening | warnings of a loop |\n|---|---:|---:|---:|\n")
        for name, outage in OUTAGES.items():
            title = name.format(options.away)
            found, right = await survive(subject, outage)
            sys.stdout.write(f"| {title} | {found} |\n")
            sys.stdout.flush()
            wrong += [] if right else [title]
        found, right = await flap(subject, options.flapping, options.every)
        sys.stdout.write(f"\n{found}\n")
        wrong += [] if right else ["the listening connection is ended again and again"]
        wrong += [] if subject.fleet.workers[0].returncode is None else ["the worker has ended"]
    finally:
        subject.fleet.close()
        servers.close()
    for each in wrong:
        sys.stdout.write(f"WRONG: {each}\n")
    if wrong:
        sys.stdout.write(f"the worker's log is in {logs}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
