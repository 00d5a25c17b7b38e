"""What is asked of a database to tell whether all is well: one function for each file under `sql/queries/doctor/`.

What the answers mean is decided in `asyncq.diagnosis`. All of it only looks.
"""

from collections.abc import Iterable
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from asyncq.db.connection import PlainCursor
from asyncq.db.statements import load
from asyncq.diagnosis import Head, Holder, Index, Runs, Server, Table

__all__ = ["claims", "horizon", "indexes", "leases", "server", "tables", "waiting"]

Connection = psycopg.AsyncConnection[Any]


async def _rows(connection: Connection, statement: LiteralString) -> list[TupleRow]:
    async with PlainCursor(connection) as cursor:
        await cursor.execute(statement, {}, binary=True)
        return await cursor.fetchall()


async def server(connection: Connection, schema: str) -> Server:
    """Tell how the server is set up."""
    [row] = await _rows(connection, load("doctor/server", schema))
    return Server(*row)


async def tables(connection: Connection, schema: str) -> Table:
    """Tell how vacuum keeps up with the jobs table."""
    [row] = await _rows(connection, load("doctor/tables", schema))
    return Table(*row)


async def indexes(connection: Connection, schema: str) -> list[Index]:
    """List the indexes of the jobs table."""
    return [Index(*row) for row in await _rows(connection, load("doctor/indexes", schema))]


async def horizon(connection: Connection, schema: str) -> list[Holder]:
    """Find what keeps deleted rows from being removed."""
    return [Holder(*row) for row in await _rows(connection, load("doctor/horizon", schema))]


async def waiting(connection: Connection, schema: str) -> list[Head]:
    """List what stands at the heads of the queues."""
    return [Head(*row) for row in await _rows(connection, load("doctor/waiting", schema))]


async def leases(connection: Connection, schema: str) -> list[Runs]:
    """Tell of runs, by worker."""
    return [Runs(*row) for row in await _rows(connection, load("doctor/leases", schema))]


async def claims(connection: Connection, schema: str, queues: Iterable[str]) -> list[tuple[str, int, float]]:
    """Find the first due job of each queue: its name, the pages read for that and the milliseconds."""
    explained = sql.SQL("explain (analyze, buffers, format json) ") + sql.SQL(load("doctor/claims", schema))
    found: list[tuple[str, int, float]] = []
    async with PlainCursor(connection) as cursor:
        for queue in queues:
            await cursor.execute(explained, {"queue": queue})
            row = await cursor.fetchone()
            assert row is not None
            [answer] = row[0]
            plan = answer["Plan"]
            pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            found.append((queue, pages, answer["Execution Time"]))
    return found
