"""The worker's own connections: how they are set up, and one that comes back after a loss.

Nobody else's settings reach them and theirs reach nobody: they are never handed to a handler.

A pooler such as pgbouncer may be in between. In transaction mode it hands each transaction to any session of its own:
settings made at the start are refused, or dropped, and what is prepared in one session is unknown in the next. So each
statement then goes in a transaction that begins with the settings, all in one round trip, and nothing is prepared.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, LiteralString, NamedTuple, cast

import anyio
import psycopg
from psycopg import adapt, postgres
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow, tuple_row
from psycopg.types.array import register_all_arrays
from psycopg.types.numeric import Int8BinaryLoader
from psycopg_pool import AsyncConnectionPool

from asyncq.errors import ConfigurationError

__all__ = ["Address", "BusyError", "PlainCursor", "Session", "address_of", "checked", "connect", "conninfo_of"]

PATIENCE_SECONDS = 30.0
"""How long a statement may take before the server is taken for lost."""

FIRST_ANSWER_SECONDS = 10.0
"""How long a new connection may take to answer, as long as it may take to come about."""

_SETTINGS = {
    # Claims must see rows that were committed a moment ago, whatever the database's default is.
    "default_transaction_isolation": "read committed",
    # Everything of asyncq's is named with its schema, and what is not is PostgreSQL's own.
    "search_path": "pg_catalog,pg_temp",
    # Every statement here is a handful of index look-ups. A plan made while the table was empty, or when its
    # statistics were stale, must not scan, hash or sort a table that has grown since.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    # Only a lock on the whole table is ever waited for, rows are skipped. Given up early, a statement cannot be carried
    # out after its worker has gone.
    "lock_timeout": "2s",
    # The other way round of the keepalives below: what the session of a worker holds whose machine vanished is given
    # back within half a minute.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
    # Nobody else's: shows that they have arrived.
    "asyncq.arrived": "yes",
}

_DEFAULTS = {
    # A server that vanished without a word is noticed within about half a minute, idle or in mid-statement.
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    # After a failover the old server answers, but cannot be written to.
    "target_session_attrs": "read-write",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Say where a connection of the worker's own goes to, and how its session is set up.

    Args:
        words: connection parameters as psycopg takes them.
        settings: of the server's configuration, by name.
    """

    words: Mapping[str, Any]
    settings: Mapping[str, str]


def conninfo_of(dsn: str) -> str:
    """Check a DSN, and take the forms that SQLAlchemy writes too.

    Raises:
        ConfigurationError: libpq cannot read it. The message shows no password.

    >>> conninfo_of("postgresql+asyncpg://app@db/shop")
    'postgresql://app@db/shop'
    """
    for driver in (
        "postgresql+psycopg://",
        "postgresql+asyncpg://",
        "postgresql+psycopg_async://",
        "postgres+asyncpg://",
    ):
        if dsn.startswith(driver):
            dsn = "postgresql://" + dsn.removeprefix(driver)
    try:
        words = conninfo_to_dict(dsn)
        ports = str(words.get("port") or "").split(",")
        if not all(port.strip().isdecimal() for port in ports if port):
            raise psycopg.ProgrammingError  # what libpq finds only when it connects
        # After an "@" in a password its rest is taken for the host, and would be shown as one that is not found.
        if any("@" in host[1:] for host in str(words.get("host") or "").split(",")):
            raise psycopg.ProgrammingError
    except psycopg.Error:
        # libpq's message quotes the text, password and all.
        raise ConfigurationError(
            "the DSN cannot be read: give a URL such as postgresql://user:password@host:5432/database"
            " (special characters in a password percent-encoded) or words such as 'host=db dbname=shop'"
        ) from None
    return dsn


def address_of(
    source: str | AsyncConnectionPool[Any], name: str, *, patience: float | None = None, durable: bool = True
) -> Address:
    """Give the address of a connection of the worker's own, from a DSN or from the parameters of a pool.

    Args:
        source: a DSN, or a pool, of which only the parameters are used.
        name: what the connection is for, shown by `pg_stat_activity.application_name`.
        patience: seconds after which its `Session` takes the server for lost, else `PATIENCE_SECONDS`. The server gives
            a statement up before.
        durable: whether commits wait for the server's disk. If so, that is left to the server's own setting.

    Raises:
        ConfigurationError: the DSN, or the pool's parameters, cannot be used.
    """
    dsn: object = source
    extra: dict[str, Any] = {}
    if not isinstance(source, str):
        if not isinstance(source, AsyncConnectionPool):
            raise ConfigurationError(f"a worker needs a DSN or a psycopg_pool.AsyncConnectionPool, not {source!r:.100}")
        dsn, pooled = source.conninfo, source.kwargs
        if callable(pooled):
            raise ConfigurationError("the pool makes its parameters by a function: give the worker a DSN instead")
        # What concerns the application's sessions, not the way to the server, is left out.
        extra = {k: v for k, v in (pooled or {}).items() if k not in _SESSION_ONLY}
    if not isinstance(dsn, str):
        raise ConfigurationError("a worker needs a DSN, or a psycopg_pool.AsyncConnectionPool that was given one")
    try:
        given = conninfo_to_dict(conninfo_of(dsn), **extra)
    except psycopg.Error as error:
        raise ConfigurationError(f"the pool's parameters cannot be used: {error}") from None
    settings = _SETTINGS | {"statement_timeout": f"{(patience or PATIENCE_SECONDS) * 800:.0f}"}
    if not durable:
        settings["synchronous_commit"] = "off"
    given["application_name"] = f"asyncq {name}"
    given["client_encoding"] = "UTF8"
    return Address({**_DEFAULTS, **{k: v for k, v in given.items() if v is not None}}, settings)


_SESSION_ONLY = {"autocommit", "row_factory", "cursor_factory", "prepare_threshold", "context"}


def _plain_adapters() -> adapt.AdaptersMap:
    adapters = adapt.AdaptersMap(types=psycopg.adapters.types)
    postgres.register_default_adapters(adapters)
    register_all_arrays(adapters)
    return adapters


_PLAIN = _plain_adapters()


def _session_adapters() -> adapt.AdaptersMap:
    adapters = adapt.AdaptersMap(_PLAIN)
    # As a number, see `asyncq.db.instants`: a datetime costs more than all the other columns of a claimed row together.
    adapters.register_loader("timestamptz", Int8BinaryLoader)
    return adapters


_SESSION = _session_adapters()


class PlainCursor(psycopg.AsyncCursor[TupleRow]):
    """A cursor on anybody's connection that speaks psycopg's own types and tuples.

    The connection may have row factories, cursor factories and adapters of its own: they do not apply here, and are
    not touched.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self._adapters = adapt.AdaptersMap(_PLAIN)
        self._reset()


class SessionCursor(psycopg.AsyncRawCursor[TupleRow]):
    """A cursor of a worker's own: parameters by number, times as numbers (see `asyncq.db.instants`)."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)
        self._adapters = adapt.AdaptersMap(_SESSION)
        self._reset()


@cache
def numbered(statement: LiteralString) -> tuple[LiteralString, tuple[str, ...]]:
    """Number the parameters of a statement, once: psycopg reads a long text anew each time, for half a millisecond.

    >>> numbered("select %(a)s, %(b)s, %(a)s, '100 %%'")
    ("select $1, $2, $1, '100 %'", ('a', 'b'))
    """
    names = tuple(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    text: str = statement
    for number, name in enumerate(names, start=1):
        text = text.replace(f"%({name})s", f"${number}")
    return cast("LiteralString", text.replace("%%", "%")), names


def checked(connection: object) -> psycopg.AsyncConnection[Any]:
    """Give the user's connection back.

    Raises:
        TypeError: it is of another kind. The message names it and says what to pass.
    """
    if isinstance(connection, psycopg.AsyncConnection):
        return connection
    kind = type(connection)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(connection, AsyncConnectionPool):
        advice = ": take a connection from it, async with pool.connection() as conn, and pass that"
    elif isinstance(connection, psycopg.Connection):
        advice = ": from synchronous code use the SQL function, select asyncq.defer(...)"
    elif kind.__module__.startswith("sqlalchemy"):
        advice = ": pass (await (await session.connection()).get_raw_connection()).driver_connection"
    else:
        advice = ""
    wanted = "the psycopg.AsyncConnection whose transaction the job belongs to"
    raise TypeError(f"the first argument must be {wanted}, not {name}{advice}")


class Connected(NamedTuple):
    """A connection, and whether a pooler is in between that does not keep the settings of a session."""

    connection: psycopg.AsyncConnection[TupleRow]
    pooled: bool


async def connect(address: Address) -> Connected:
    """Open a connection of the worker's own, in autocommit: each statement is a short transaction.

    Raises:
        psycopg.OperationalError: there is none to be had, or nothing answers on it.
    """
    options = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in address.settings.items())
    given = str(address.words.get("options") or "")
    try:
        connection = await _connect({**address.words, "options": f"{given} {options}".strip()})
    except psycopg.OperationalError as error:
        # As pgbouncer puts it; there is no code to tell it by.
        if "unsupported startup parameter" not in str(error):
            raise
        connection = await _connect(address.words)
    try:
        pooled = not await _has_settings(connection)
    except BaseException:
        await connection.close()
        raise
    if pooled:
        connection.prepare_threshold = None
        # Other clients of the pooler may have left LISTEN behind. What comes of it would be kept for somebody to read.
        connection.add_notify_handler(lambda _: None)
    return Connected(connection, pooled)


async def _has_settings(connection: psycopg.AsyncConnection[TupleRow]) -> bool:
    """Say whether the settings arrived: told to ignore them, a pooler takes them and forgets them.

    That it was connected says nothing yet: a pooler does that by itself.
    """
    async with SessionCursor(connection) as cursor:
        try:
            with anyio.fail_after(FIRST_ANSWER_SECONDS):
                await cursor.execute("select current_setting('asyncq.arrived', true)", prepare=False)
                return await cursor.fetchone() == ("yes",)
        except TimeoutError:
            raise psycopg.OperationalError(
                f"the connection was taken, and for {FIRST_ANSWER_SECONDS:g} s nothing answered: is a pooler in between"
                " that is paused, or that has no session of the server left?"
            ) from None


async def _connect(words: Mapping[str, Any]) -> psycopg.AsyncConnection[TupleRow]:
    return await psycopg.AsyncConnection.connect(
        make_conninfo(**words), autocommit=True, prepare_threshold=0, cursor_factory=psycopg.AsyncCursor
    )


async def apply_settings(connection: psycopg.AsyncConnection[Any], address: Address, *, local: bool) -> None:
    """Make the settings for the transaction, or for the session: for one that a pooler keeps for its client."""
    # How the server watches its clients concerns the pooler's own connections.
    settings = {name: value for name, value in address.settings.items() if not name.startswith("tcp_")}
    await connection.execute(
        "select set_config(s.name, s.value, %s::boolean) from unnest(%s::text[], %s::text[]) s (name, value)",
        (local, list(settings), list(settings.values())),
    )


class BusyError(Exception):
    """A session was not free in time."""


class Session:
    """Run single statements on one connection, opened when first needed and anew after a loss.

    Statements come one at a time, in the order of asking. An error is raised to the caller, who decides whether to
    try again; a broken connection is dropped first, so that the next call opens another. So is one that has not
    answered for `patience` seconds, with a `TimeoutError`: a proxy that acknowledges what it gets, and lost its server,
    looks alive to the kernel.

    Times come as numbers, see `asyncq.db.instants`.
    """

    def __init__(self, address: Address, *, patience: float | None = None) -> None:
        self._address = address
        self._patience = patience or PATIENCE_SECONDS
        self._connection: psycopg.AsyncConnection[TupleRow] | None = None
        self._cursor: SessionCursor | None = None
        self._pooled = False
        # Without a turn of the event loop where nobody waits, which costs as much as a small statement.
        self._turn = anyio.Lock(fast_acquire=True)
        self.connected_at: float | None = None
        """On the event loop's clock, when the present connection was opened; None while there is none."""

    async def fetch(
        self,
        statement: LiteralString,
        params: Mapping[str, object] | Callable[[], Mapping[str, object]],
        *,
        patience: float | None = None,
        turn_within: float = inf,
    ) -> Sequence[TupleRow]:
        """Run a statement and give all its rows.

        Args:
            statement: with parameters by name.
            params: their values, or what gives them when the statement is about to be sent.
            patience: seconds for this statement, instead of the session's.
            turn_within: seconds to wait for those before it, else `BusyError`.
        """
        await self._take_turn(turn_within)
        try:
            connection = await self._open()
            cursor = self._cursor
            assert cursor is not None
            try:
                text, names = numbered(statement)
                given = params() if callable(params) else params
                values = [given[name] for name in names]
                with anyio.fail_after(patience or self._patience):
                    if self._pooled:
                        await self._execute_pooled(connection, cursor, text, values)
                    else:
                        await cursor.execute(text, values, binary=True)
                    return await cursor.fetchall()
            except psycopg.Error as error:
                # Behind a pooler it is in the middle of a transaction.
                if connection.closed or self._pooled or _lost(error):
                    await self._drop()
                raise
            except BaseException:
                # Cancelled in mid-statement: what the connection is in the middle of is not known.
                await self._drop()
                raise
        finally:
            self._turn.release()

    async def _take_turn(self, within: float) -> None:
        if within == inf:
            await self._turn.acquire()
            return
        taken = False
        with anyio.move_on_after(within):
            await self._turn.acquire()
            taken = True
        if not taken:
            raise BusyError

    async def _execute_pooled(
        self,
        connection: psycopg.AsyncConnection[TupleRow],
        cursor: SessionCursor,
        text: LiteralString,
        values: list[object],
    ) -> None:
        async with connection.pipeline():
            await connection.execute("begin isolation level read committed")
            # What a listener left in this session, before it found out that it was not its own.
            await connection.execute("unlisten *")
            await apply_settings(connection, self._address, local=True)
            await cursor.execute(text, values, binary=True)
            await connection.execute("commit")

    async def ensure_connected(self) -> None:
        """Open the connection if there is none; one that broke without a word is found by the next statement."""
        async with self._turn:
            await self._open()

    async def _open(self) -> psycopg.AsyncConnection[TupleRow]:
        if self._connection is None:
            self._connection, self._pooled = await connect(self._address)
            self._cursor = SessionCursor(self._connection)
            self.connected_at = anyio.current_time()
        return self._connection

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._drop()

    async def _drop(self) -> None:
        connection, self._connection, self._cursor, self.connected_at = self._connection, None, None, None
        if connection is not None:
            await connection.close()


def _lost(error: psycopg.Error) -> bool:
    """Say whether another connection may do better.

    The server went read-only or is going down (25006, 57P01 to 57P03), or a migration, or a pooler, has made a prepared
    statement useless (0A000, 26000), which a new connection prepares anew.
    """
    return error.sqlstate in ("0A000", "25006", "25P03", "26000", "57P01", "57P02", "57P03")
