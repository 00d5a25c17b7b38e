"""Sessions as a worker has them, and more connections."""

from collections.abc import AsyncGenerator, Generator

import psycopg
import pytest

from asyncq.db.connection import Session, address_of
from tests.conftest import chosen
from tests.servers import Servers


@pytest.fixture(scope="module")
def shared_dsn(request: pytest.FixtureRequest, servers: Servers) -> Generator[str]:
    """A migrated database for those tests of a module that try what is refused: nothing gets into it."""
    postgres = servers.shared(chosen(request.config))
    dsn = postgres.create_database()
    yield dsn
    postgres.drop_database(dsn)


@pytest.fixture
async def refusing(shared_dsn: str) -> AsyncGenerator[psycopg.AsyncConnection]:
    """A connection to the shared database, as psycopg gives it."""
    async with await psycopg.AsyncConnection.connect(shared_dsn) as conn:
        yield conn
        await conn.rollback()


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
