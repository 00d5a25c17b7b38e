"""The small shop of `asyncq demo`: an application as a user would write it, with tables, queues and tasks of its own.

The web application's part is `check_out`; the rest runs in workers, `asyncq worker asyncq.cli.shop`. Handlers note what
they did in the shop's own tables, over connections of their own: whether a job ran twice or never is judged by these.
"""

import http.client
import json
import os
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import anyio
import psycopg

from asyncq.db.connection import conninfo_of
from asyncq.queue import Queue
from asyncq.retry import RetryPolicy
from asyncq.running import current_job

__all__ = [
    "LEASE",
    "MISPRINT",
    "PRICE_ATTEMPTS",
    "SCHEMA",
    "SHELVES",
    "TABLES",
    "CardDeclinedError",
    "check_out",
    "connected",
    "prices",
    "read_price",
    "receipts",
    "stock",
    "take_stock",
    "webhooks",
]

SCHEMA = "asyncq_demo"
"""Of asyncq's tables; the shop's are in asyncq_demo_shop. Neither is anybody's in a database that is not ours."""

SHELVES = 15
PRICE_ATTEMPTS = 3
LEASE = timedelta(seconds=2)

MISPRINT = "12,so"
"""A price that nobody can read: what makes the poison job one."""

TABLES = """
create schema asyncq_demo_shop;
create table asyncq_demo_shop.orders (id bigint generated always as identity primary key, cents int not null);
-- No unique constraint: a receipt sent twice is to be seen, not prevented.
create table asyncq_demo_shop.receipts (order_id bigint not null, pid int not null);
create table asyncq_demo_shop.products (name text primary key, printed text not null, cents int);
create table asyncq_demo_shop.shelves (shelf int primary key, pid int not null);
create table asyncq_demo_shop.runs (
    task text not null,
    attempt int not null,
    pid int not null,
    at timestamptz not null default clock_timestamp()
);
"""

# Short delays, because somebody is watching.
SOON = RetryPolicy(base=timedelta(seconds=0.3), factor=1.0)

receipts = Queue("receipts", schema=SCHEMA)
webhooks = Queue("webhooks", schema=SCHEMA, retry=SOON)
prices = Queue("prices", schema=SCHEMA, retry=SOON, max_attempts=PRICE_ATTEMPTS)
stock = Queue("stock", schema=SCHEMA, lease=LEASE)


class CardDeclinedError(Exception):
    """The payment failed after everything had been written: the transaction must undo it all."""


class PartnerRefusedError(Exception):
    """The partner's server answered, but not that it took the message."""


@asynccontextmanager
async def connected(dsn: str) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
    """Connect to the shop's database, in autocommit, for a block."""
    connection = await psycopg.AsyncConnection.connect(conninfo_of(dsn), autocommit=True, connect_timeout=10)
    try:
        yield connection
    finally:
        # psycopg's own "async with" rolls back first, and when cancelled in that leaves the connection open.
        with anyio.CancelScope(shield=True):
            await connection.close()


async def check_out(
    connection: psycopg.AsyncConnection[Any], cents: int, *, declined: bool, partner_port: int | None = None
) -> None:
    """Place an order in the caller's transaction, with the jobs that belong to it.

    Args:
        connection: the caller's, in a transaction.
        cents: the total.
        declined: whether the bank refuses the card, which it says last.
        partner_port: where the partner who sent the customer is told of the order, if one did.

    Raises:
        CardDeclinedError: the caller's transaction is to be rolled back, and the jobs with it.
    """
    row = await connection.execute("insert into asyncq_demo_shop.orders (cents) values (%s) returning id", (cents,))
    order_id: int = (await row.fetchone() or (0,))[0]
    await send_receipt.defer(connection, order_id)
    if partner_port is not None:
        await tell_partner.defer(connection, partner_port, order_id)
    if declined:
        raise CardDeclinedError


def _own_connection() -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
    return connected(os.environ["ASYNCQ_DSN"])


RUN = "insert into asyncq_demo_shop.runs (task, attempt, pid) values (%s, %s, %s)"


@receipts.task
async def send_receipt(order_id: int) -> None:
    """Send a receipt: the mail server takes a moment."""
    await anyio.sleep(0.1)
    async with _own_connection() as connection:
        await connection.execute(
            "insert into asyncq_demo_shop.receipts (order_id, pid) values (%s, %s)", (order_id, os.getpid())
        )


@webhooks.task(timeout=timedelta(seconds=10))
def tell_partner(port: int, order_id: int) -> None:
    """Call the partner's webhook, in a thread: a plain `def` may block."""
    partner = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        partner.request("POST", "/orders", json.dumps({"order": order_id}), {"Content-Type": "application/json"})
        answer = partner.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise PartnerRefusedError(f"the partner answered {answer.status}")
    finally:
        partner.close()


@prices.task
async def read_price(product: str) -> None:
    """Read the price that is printed on a product."""
    async with _own_connection() as connection:
        await connection.execute(RUN, ("read_price", current_job().attempts, os.getpid()))
        row = await connection.execute("select printed from asyncq_demo_shop.products where name = %s", (product,))
        printed: str = (await row.fetchone() or ("",))[0]
        cents = int(Decimal(printed) * 100)
        await connection.execute("update asyncq_demo_shop.products set cents = %s where name = %s", (cents, product))


@stock.task
async def take_stock() -> None:
    """Count the shelves, one after the other. A later run goes on where a killed one was, as all handlers should."""
    async with _own_connection() as connection:
        await connection.execute(RUN, ("take_stock", current_job().attempts, os.getpid()))
        rows = await connection.execute("select shelf from asyncq_demo_shop.shelves")
        counted = {shelf for (shelf,) in await rows.fetchall()}
        for shelf in sorted(set(range(SHELVES)) - counted):
            await anyio.sleep(0.1)
            await connection.execute(
                "insert into asyncq_demo_shop.shelves (shelf, pid) values (%s, %s)", (shelf, os.getpid())
            )
