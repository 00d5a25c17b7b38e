"""`asyncq demo`: a small shop on a real PostgreSQL with real workers, and a table of what was promised and happened.

::

    this process: the web application, the partner's web server, and whoever kills the worker
      │  orders and their jobs, in transactions           ▲  webhooks
      ▼                                                   │
    PostgreSQL  <──────────────────────────  two worker processes: asyncq worker asyncq.cli.shop

What happened is read from the shop's own tables and from the partner's log of answers, not from what this process or
the jobs table believes. It all ends in reverse order of its beginning, a Ctrl-C or SIGTERM in the middle included:
workers, server, and the temporary directories with everything in them.
"""

import argparse
import asyncio
import contextlib
import functools
import logging
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import anyio
import psycopg
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from asyncq.cli import shop
from asyncq.cli.child import Child, started
from asyncq.cli.demo_view import Step, View, view
from asyncq.cli.interrupt import cancelled_by_signals, one_error
from asyncq.cli.log import printable
from asyncq.db import migrate
from asyncq.errors import ConfigurationError
from asyncq.queue import Queue

__all__ = ["Facts", "Promise", "add", "promises", "verdict"]

T = TypeVar("T")

TILLS = 4
ORDERS_PER_TILL = 50
DECLINED_OF_TEN = 3
ORDERS = TILLS * ORDERS_PER_TILL
DECLINED = ORDERS * DECLINED_OF_TEN // 10

ANSWERS = (500, 500, 200)
"""What the partner's server answers; after these, always the last."""

PRODUCT, REPAIRED, CENTS = "umbrella", "12.50", 1250

RESCUE_SECONDS = shop.LEASE.total_seconds() + 5.0

PLAY_SECONDS = 40.0
"""It takes about eight. After this the play is broken off, and the table shows what is missing."""

GRACE_SECONDS = 5.0
STOP_SECONDS = GRACE_SECONDS + 5.0
DROP_SECONDS = 10.0


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "demo",
        help="see it work: a small shop, and what becomes of its jobs",
        description="Start an embedded PostgreSQL and two workers, run a small shop on them, kill a worker, and compare"
        " what was promised with what happened. Takes about ten seconds and leaves nothing behind.",
        epilog="exit codes: 0 everything was as promised, 1 something was not, 2 usage or configuration",
        allow_abbrev=False,
    )
    # The environment's ASYNCQ_DSN is left alone on purpose: a demonstration happens only where it is told to.
    parser.add_argument(
        "--dsn",
        help="use this database instead of an embedded one: the schemas asyncq_demo and asyncq_demo_shop are created,"
        " and dropped in the end",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    # A signal cancels queries, and psycopg would warn of each.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    return asyncio.run(_until_interrupted(options.dsn))


async def _until_interrupted(dsn: str | None) -> int:
    with cancelled_by_signals() as interrupted, one_error():
        return await _demo(dsn)
    return interrupted.exit_code


async def _demo(given_dsn: str | None) -> int:
    with tempfile.TemporaryDirectory(prefix="asyncq-demo-") as directory:
        logs = Path(directory)
        with contextlib.closing(view()) as screen:
            screen.say("starting PostgreSQL and two workers")
            async with _database(given_dsn) as dsn:
                facts = await _perform(dsn, logs, screen)
        kept = promises(facts)
        screen.table(
            ("what was done", "promised", "happened", ""),
            [(each.done, each.promised, each.happened, "kept" if each.kept else "BROKEN") for each in kept],
        )
        if verdict(kept):
            _show_logs(logs)
    return verdict(kept)


def _show_logs(logs: Path) -> None:
    for log in sorted(logs.iterdir()):
        print(f"the end of {log.name}:", file=sys.stderr)
        for line in log.read_text(errors="replace").splitlines()[-20:]:
            print(f"    {printable(line)}", file=sys.stderr)


# -------------------------------------------------------------------------------------- what was promised, and happened


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What happened, as the shop's tables, the partner's log and the system tell it."""

    orders: int
    receipts: int
    orders_with_one_receipt: int
    declined: int
    receipts_without_order: int
    answers: tuple[int, ...]
    dead_letter_attempts: int | None
    price_attempts: tuple[int, ...]
    price_cents: int | None
    killed_pid: int | None
    rerun_pid: int | None
    rerun_seconds: float | None
    shelves: int
    jobs_left: int
    exit_codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Promise:
    """A line of the table."""

    done: str
    promised: str
    happened: str
    kept: bool

    @classmethod
    def literal(cls, done: str, promised: str, happened: str) -> "Promise":
        """Make one that is kept by happening word for word."""
        return cls(done, promised, happened, promised == happened)


def verdict(told: list[Promise]) -> int:
    """Give the exit code: 0 if all was kept."""
    return 0 if told and all(each.kept for each in told) else 1


def promises(facts: Facts) -> list[Promise]:
    """Compare what was promised with what happened."""
    return [
        _receipts(facts),
        _rolled_back(facts),
        Promise.literal(
            "webhook failing twice",
            _listed(ANSWERS),
            _listed(facts.answers) if facts.answers else "never called",
        ),
        _discarded(facts),
        _replayed(facts),
        _rescued(facts),
        Promise.literal("the work of that job", f"{shop.SHELVES} shelves counted", f"{facts.shelves} shelves counted"),
        Promise.literal("jobs left in the end", "none", str(facts.jobs_left) if facts.jobs_left else "none"),
        Promise.literal(
            "worker told to stop",
            "exit code 0",
            f"exit code {_listed(facts.exit_codes)}" if facts.exit_codes else "it was gone",
        ),
    ]


def _receipts(facts: Facts) -> Promise:
    """One receipt for each order: as many receipts as orders would not say it."""
    committed = ORDERS - DECLINED
    kept = facts.receipts == facts.orders == facts.orders_with_one_receipt == committed
    each = "1 each" if kept else f"{facts.orders_with_one_receipt} of {facts.orders} orders have one"
    return Promise(
        f"{committed} orders committed",
        f"{committed} receipts, 1 each",
        f"{facts.receipts} receipts, {each}",
        kept,
    )


def _rolled_back(facts: Facts) -> Promise:
    stray = facts.receipts_without_order
    happened = "no receipt" if stray == 0 else f"{stray} receipt{'s' if stray > 1 else ''}"
    if facts.declined != DECLINED:
        happened = f"{facts.declined} rolled back, {happened}"
    return Promise.literal(f"{DECLINED} orders rolled back", "no receipt", happened)


def _discarded(facts: Facts) -> Promise:
    """The row says how often it was tried, and the runs' own log must agree."""
    last = shop.PRICE_ATTEMPTS
    runs = facts.price_attempts[:last]
    if facts.dead_letter_attempts is None:
        happened = f"not discarded, {len(runs)} runs"
    else:
        happened = f"discarded, attempt {facts.dead_letter_attempts}"
    kept = facts.dead_letter_attempts == last and runs == tuple(range(1, last + 1))
    return Promise("poison job", f"discarded, attempt {last}", happened, kept)


def _replayed(facts: Facts) -> Promise:
    """Its attempts start at 1 again, and one was enough."""
    attempts = facts.price_attempts[shop.PRICE_ATTEMPTS :]
    if facts.price_cents is None:
        happened = "not done"
    elif facts.price_cents != CENTS:
        happened = f"done wrongly: {facts.price_cents} cents"
    else:
        happened = f"done, attempt {_listed(attempts)}"
    return Promise.literal("repaired and replayed", "done, attempt 1", happened)


def _rescued(facts: Facts) -> Promise:
    kept = False
    if facts.killed_pid is None:
        happened = "no worker was killed"
    elif facts.rerun_seconds is None:
        happened = "did not run again"
    elif facts.rerun_pid == facts.killed_pid:
        happened = "runs where it ran"
    else:
        kept = facts.rerun_seconds <= RESCUE_SECONDS
        happened = f"elsewhere in {facts.rerun_seconds:.1f} s"
    return Promise("job of a killed worker", f"elsewhere within {RESCUE_SECONDS:g} s", happened, kept)


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))


# ------------------------------------------------------------------------------------------------------------ the stage


@asynccontextmanager
async def _database(given_dsn: str | None) -> AsyncGenerator[str]:
    """Provide a database with both schemas in it, and leave nothing of it behind."""
    async with AsyncExitStack() as ending:
        dsn = given_dsn
        if dsn is None:
            dsn = await _start_server(ending)
        async with shop.connected(dsn) as connection:
            await _create_schemas(connection)
            ending.push_async_callback(_drop_schemas, dsn)
        await migrate.migrate(dsn, schema=shop.SCHEMA)
        yield dsn


async def _start_server(ending: AsyncExitStack) -> str:
    from asyncq import embedded  # noqa: PLC0415 - refuses to be imported where it cannot run

    # Workers are killed here, the server is not: it need not survive a power failure. In a thread, and not to be
    # abandoned there: a signal that arrives meanwhile finds a server that can be stopped.
    server = await anyio.to_thread.run_sync(functools.partial(embedded.start, settings={"fsync": "off"}))

    async def stop() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.stop)

    ending.push_async_callback(stop)
    return server.dsn


async def _create_schemas(connection: psycopg.AsyncConnection[Any]) -> None:
    """Make both schemas or neither: what was there before is not ours, and so not ours to drop."""
    try:
        async with connection.transaction():
            await connection.execute("create schema asyncq_demo")
            await connection.execute(shop.TABLES)
    except psycopg.errors.DuplicateSchema as error:
        raise ConfigurationError(
            f"{str(error).strip()} in this database: if no other demo runs in it, drop that schema"
        ) from None


async def _drop_schemas(dsn: str) -> None:
    with anyio.move_on_after(DROP_SECONDS, shield=True):
        async with shop.connected(dsn) as connection:
            await connection.execute("drop schema if exists asyncq_demo_shop, asyncq_demo cascade")


@dataclass(slots=True)
class Partner:
    """The partner's web server on loopback, and its log."""

    answers: list[int] = field(default_factory=list)
    port: int = 0

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        """Answer until cancelled."""
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            self.port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
            task_status.started()
            await listener.serve(self._answer)

    async def _answer(self, stream: SocketStream) -> None:
        async with stream:
            # Whoever else calls, and hangs up in mid-sentence, is not what this is about.
            with anyio.move_on_after(5), contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                request = b""
                while b"}" not in request:  # the body is a flat JSON object, and the last thing that is sent
                    request += await stream.receive()
                status = ANSWERS[min(len(self.answers), len(ANSWERS) - 1)]
                self.answers.append(status)
                await stream.send(f"HTTP/1.1 {status} .\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())


@dataclass(slots=True)
class Stage:
    """What the acts work with, and what they note for the table in the end."""

    dsn: str
    screen: View
    partner: Partner
    workers: list[Child]
    declined: int = 0
    dead_letter_attempts: int | None = None
    killed: Child | None = None
    killed_at: datetime | None = None
    exit_codes: tuple[int, ...] = ()


async def _perform(dsn: str, logs: Path, screen: View) -> Facts:
    async with AsyncExitStack() as closing:
        workers = [
            await closing.enter_async_context(
                started(
                    ["worker", "asyncq.cli.shop", "--concurrency=10", f"--grace={GRACE_SECONDS}"],
                    dsn=dsn, patience=STOP_SECONDS, log=logs / f"worker-{number}.log",
                )
            )
            for number in (1, 2)
        ]  # fmt: skip
        stage = Stage(dsn, screen, Partner(), workers)
        await _play(stage)
        if alive := [worker for worker in workers if worker.returncode is None]:
            screen.say(f"stopping worker {', '.join(str(worker.pid) for worker in alive)} by SIGTERM")
            stage.exit_codes = tuple([await worker.stop(STOP_SECONDS) for worker in alive])
    return await _audit(stage)


async def _play(stage: Stage) -> None:
    """Play all acts, or what of them the time allows."""
    async with anyio.create_task_group() as around:
        await around.start(stage.partner.serve)
        around.start_soon(_show, stage)
        with anyio.move_on_after(PLAY_SECONDS) as time:
            for worker in stage.workers:
                around.start_soon(_guard, stage, worker, time)
            async with anyio.create_task_group() as acts:
                acts.start_soon(_sell, stage)
                acts.start_soon(_poison, stage)
            # Alone on the stage: whatever else a killed worker was at would run again too, as it should.
            await _kill(stage)
        if time.cancelled_caught:
            stage.screen.say("the play was broken off")
        around.cancel_scope.cancel()


async def _guard(stage: Stage, worker: Child, play: anyio.CancelScope) -> None:
    """Break the play off when a worker ends that nobody killed: there is nothing more to wait for."""
    code = await worker.wait()
    if worker is not stage.killed:
        stage.screen.say(f"worker {worker.pid} ended by itself, with exit code {code}")
        play.cancel()


async def _until(look: Callable[[], Awaitable[T | None]]) -> T:
    """Look until there is something; the play's deadline is the deadline."""
    while (found := await look()) is None:  # noqa: ASYNC110 - what is waited for happens in another process
        await anyio.sleep(0.1)
    return found


def _ended(connection: psycopg.AsyncConnection[Any], *queues: Queue) -> Callable[[], Awaitable[bool | None]]:
    """Give a look that finds something when no job is left in these queues."""

    async def look() -> bool | None:
        query = "select 1 from asyncq_demo.jobs where queue = any(%s) limit 1"
        return True if await _row(connection, query, [queue.name for queue in queues]) is None else None

    return look


async def _row(connection: psycopg.AsyncConnection[Any], query: str, *params: object) -> Any:
    cursor = await connection.execute(query.encode(), params)
    return await cursor.fetchone()


# ------------------------------------------------------------------------------------------------------------- the acts


async def _sell(stage: Stage) -> None:
    async with anyio.create_task_group() as tills:
        for till in range(TILLS):
            tills.start_soon(_till, stage, till)
    stage.screen.say(f"{ORDERS - stage.declined} orders committed, {stage.declined} rolled back")
    async with shop.connected(stage.dsn) as connection:
        await _until(_ended(connection, shop.receipts, shop.webhooks))
    stage.screen.say(f"receipts sent; the partner's webhook answered {_listed(tuple(stage.partner.answers))}")


async def _till(stage: Stage, till: int) -> None:
    """Serve one customer after the other, each in a transaction."""
    async with shop.connected(stage.dsn) as connection:
        for number in range(ORDERS_PER_TILL):
            port = stage.partner.port if till == 0 and number == 0 else None
            declined = number % 10 >= 10 - DECLINED_OF_TEN
            try:
                async with connection.transaction():
                    await shop.check_out(connection, 100 + number, declined=declined, partner_port=port)
            except shop.CardDeclinedError:
                stage.declined += 1
            await anyio.sleep(0.02)


async def _poison(stage: Stage) -> None:
    async with shop.connected(stage.dsn) as connection:
        async with connection.transaction():
            await connection.execute(
                "insert into asyncq_demo_shop.products (name, printed) values (%s, %s)", (PRODUCT, shop.MISPRINT)
            )
            await shop.read_price.defer(connection, PRODUCT)

        async def dead_letter() -> Any:
            return next(iter(await shop.prices.discarded(connection)), None)

        letter = await _until(dead_letter)
        stage.dead_letter_attempts = letter.attempts
        error = (letter.last_error or "").strip().splitlines()[-1]
        stage.screen.say(f"the price {shop.MISPRINT!r} made a dead letter: {printable(error)}")
        async with connection.transaction():
            await connection.execute(
                "update asyncq_demo_shop.products set printed = %s where name = %s", (REPAIRED, PRODUCT)
            )
            await shop.prices.replay(connection, [letter.id])
        stage.screen.say("price repaired and job replayed, in one transaction")
        await _until(_ended(connection, shop.prices))


async def _kill(stage: Stage) -> None:
    """Kill the worker that runs a job, whichever of them it is, and wait until another has done the job."""
    async with shop.connected(stage.dsn) as connection:
        await shop.take_stock.defer(connection)

        async def at_work() -> Child | None:
            row = await _row(connection, "select pid from asyncq_demo_shop.shelves limit 1")
            return next((worker for worker in stage.workers if row and worker.pid == row[0]), None)

        stage.killed = await _until(at_work)
        (stage.killed_at,) = await _row(connection, "select clock_timestamp()")
        stage.killed.kill()
        stage.screen.say(f"worker {stage.killed.pid} killed (kill -9) while it takes stock")

        async def again() -> Any:
            return await _row(connection, RERUN, stage.killed_at)

        pid, _ = await _until(again)
        stage.screen.say(f"its job was rescued and runs on worker {pid}")
        await _until(_ended(connection, shop.stock))


# ------------------------------------------------------------------------------------------------------------ the audit


async def _show(stage: Stage) -> None:
    async with shop.connected(stage.dsn) as connection:
        while True:
            stage.screen.show(await _steps(stage, connection))
            await anyio.sleep(0.2)


STEPS = """
select
    (select count(*) from asyncq_demo_shop.orders),
    (select count(*) from asyncq_demo_shop.receipts),
    (select count(*) from asyncq_demo_shop.runs where task = 'read_price'),
    (select count(*) from asyncq_demo_shop.shelves)
"""


async def _steps(stage: Stage, connection: psycopg.AsyncConnection[Any]) -> list[Step]:
    orders, receipts, price_runs, shelves = await _row(connection, STEPS)
    committed = ORDERS - DECLINED
    return [
        Step("orders committed", orders, committed),
        Step("receipts sent", receipts, committed),
        Step("webhook calls", len(stage.partner.answers), len(ANSWERS)),
        Step("runs of the poison job", price_runs, shop.PRICE_ATTEMPTS + 1),
        Step("shelves counted", shelves, shop.SHELVES),
    ]


AUDIT = """
with sent as (
    select order_id, count(*) as times from asyncq_demo_shop.receipts group by order_id
)
select
    (select count(*) from asyncq_demo_shop.orders),
    (select count(*) from asyncq_demo_shop.receipts),
    (select count(*) from asyncq_demo_shop.orders join sent on order_id = id where times = 1),
    (select count(*) from sent where order_id not in (select id from asyncq_demo_shop.orders)),
    (select array_agg(attempt order by at) from asyncq_demo_shop.runs where task = 'read_price'),
    (select cents from asyncq_demo_shop.products),
    (select count(*) from asyncq_demo_shop.shelves),
    (select count(*) from asyncq_demo.jobs)
"""

RERUN = """
select pid, extract(epoch from at - %s)::float8 from asyncq_demo_shop.runs
where task = 'take_stock' and attempt > 1 order by at limit 1
"""


async def _audit(stage: Stage) -> Facts:
    """Look at everything once more, when nothing moves any more."""
    async with shop.connected(stage.dsn) as connection:
        stage.screen.show(await _steps(stage, connection))
        orders, receipts, single, stray, attempts, cents, shelves, left = await _row(connection, AUDIT)
        rerun = await _row(connection, RERUN, stage.killed_at) or (None, None)
    return Facts(
        orders=orders,
        receipts=receipts,
        orders_with_one_receipt=single,
        declined=stage.declined,
        receipts_without_order=stray,
        answers=tuple(stage.partner.answers),
        dead_letter_attempts=stage.dead_letter_attempts,
        price_attempts=tuple(attempts or ()),
        price_cents=cents,
        killed_pid=stage.killed.pid if stage.killed else None,
        rerun_pid=rerun[0],
        rerun_seconds=rerun[1],
        shelves=shelves,
        jobs_left=left,
        exit_codes=stage.exit_codes,
    )
