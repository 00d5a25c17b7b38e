"""Sessions as a worker has them, and more connections."""

from collections.abc import AsyncGenerator

import psycopg
import pytest

from asyncq.db.connection import Session, address_of


@pytest.fixture
async def session(dsn: str) -> AsyncGenerator[Session]:
    """A worker's session, with a worker's settings."""
    session = Session(address_of(dsn, "test 1"))
    yield session
    await session.close()


@pytest.fixture
async def other_session(dsn: str) -> AsyncGenerator[Session]:
    """Another worker's session."""
    session = Session(address_of(dsn, "test 2"))
    yield session
    await session.close()


@pytest.fixture
async def listening(dsn: str) -> AsyncGenerator[psycopg.AsyncConnection]:
    """A connection that listens to the channel of schema `asyncq`."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute("listen asyncq")
        yield conn
