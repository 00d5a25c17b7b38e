"""Migrations: bring a database's schema up to this release, once, however many try at the same time.

Each file under `sql/migrations` is one forward step and one transaction, which also notes it in `asyncq.migrations`.
Everything, the making of the schema included, happens under a transaction-level advisory lock: it holds through a
pooler too, and a killed migration leaves nothing behind but what it had committed. A step may name, in a line
`-- oldest release: X.Y.Z`, the oldest release that still works on it; workers older than that refuse to start.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from psycopg import sql

from asyncq.db.connection import PlainCursor, conninfo_of
from asyncq.db.statements import checked_schema, in_schema, sql_folder
from asyncq.errors import SchemaOutdatedError

__all__ = ["Migration", "applied", "check", "migrate", "migrations", "missing", "script"]

Connection = psycopg.AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema.

    Args:
        version: its number, 1 and up without gaps.
        name: what it brings, as in its file's name.
        oldest_release: the oldest asyncq that works on the schema once it is applied.
        text: the file.
    """

    version: int
    name: str
    oldest_release: str
    text: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Read all steps of this release, in order."""
    found: list[Migration] = []
    for file in sql_folder().joinpath("migrations").iterdir():
        named = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if named:
            text = file.read_text(encoding="utf-8")
            oldest = re.search(r"^-- oldest release: (\d+\.\d+\.\d+)$", text, re.MULTILINE)
            assert oldest is not None, f"{file.name} names no oldest release"
            found.append(Migration(int(named[1]), named[2], oldest[1], text))
    return tuple(sorted(found, key=lambda migration: migration.version))


_TABLE = """
create table if not exists asyncq.migrations (
    version integer primary key,
    name text not null,
    oldest_release text not null,
    applied_at timestamptz not null default now()
);
comment on table asyncq.migrations is 'The steps of the schema that were applied, by asyncq migrate.';
comment on column asyncq.migrations.version is 'The number of the step.';
comment on column asyncq.migrations.name is 'What it brought.';
comment on column asyncq.migrations.oldest_release is 'Workers older than this release do not work on it.';
comment on column asyncq.migrations.applied_at is 'When it was applied.';
"""

_LOCK = "select pg_advisory_xact_lock(hashtext('asyncq migrate'), hashtext(%s))"

_NOTE = "insert into asyncq.migrations (version, name, oldest_release) values (%s, %s, %s)"


async def migrate(dsn: str, *, schema: str = "asyncq") -> list[Migration]:
    """Apply what is missing, and give it; nothing is missing afterwards.

    Concurrent calls wait for each other, and each step is applied by one of them. Steps that a newer release
    applied are left alone.

    Raises:
        ConfigurationError: the schema's name or the DSN cannot be used.
        psycopg.Error: the server refused, for instance for a missing right. Steps before the refused one stay.
    """
    name = sql.Identifier(checked_schema(schema))
    done: list[Migration] = []
    async with await psycopg.AsyncConnection.connect(conninfo_of(dsn)) as connection:
        # Whoever waited for the lock must see what the one before has done.
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        for step in migrations():
            async with connection.transaction():
                await connection.execute("set local search_path = pg_catalog, pg_temp")
                await connection.execute(_LOCK, (schema,))
                if step.version in await applied(connection, schema):
                    continue
                # Asked first, not "if not exists": that would want the right to create schemas also where one was
                # made for a role that lacks it.
                found = await connection.execute("select 1 from pg_namespace where nspname = %s", (schema,))
                if await found.fetchone() is None:
                    await connection.execute(sql.SQL("create schema {}").format(name))
                await connection.execute(in_schema(_TABLE, schema))
                await connection.execute(in_schema(step.text, schema))
                await connection.execute(in_schema(_NOTE, schema), (step.version, step.name, step.oldest_release))
            done.append(step)
    return done


async def applied(connection: Connection, schema: str) -> dict[int, str]:
    """Give the applied steps: version and the oldest release that works on it. Empty when there is no schema."""
    async with PlainCursor(connection) as cursor:
        await cursor.execute(
            "select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = %s and c.relname = 'migrations'",
            (checked_schema(schema),),
        )
        if await cursor.fetchone() is None:
            return {}
        await cursor.execute(in_schema("select version, oldest_release from asyncq.migrations", schema))
        return dict(await cursor.fetchall())


async def missing(dsn: str, *, schema: str = "asyncq") -> list[Migration]:
    """Give the steps that `migrate` would apply."""
    async with await psycopg.AsyncConnection.connect(conninfo_of(dsn)) as connection:
        there = await applied(connection, schema)
    return [step for step in migrations() if step.version not in there]


async def check(connection: Connection, schema: str, release: str) -> None:
    """Refuse a schema that this release cannot work on.

    Raises:
        SchemaOutdatedError: steps are missing, or a newer step asks for a newer release. The message says what to do.
    """
    there = await applied(connection, schema)
    if not there:
        raise SchemaOutdatedError(f"there is no schema {schema!r} in this database: run 'asyncq migrate' first")
    lacking = [step.version for step in migrations() if step.version not in there]
    if lacking:
        raise SchemaOutdatedError(
            f"schema {schema!r} lacks {'migration' if len(lacking) == 1 else 'migrations'}"
            f" {', '.join(map(str, lacking))}: run 'asyncq migrate'"
        )
    oldest = max(there.values(), key=_parts)
    if _parts(release) < _parts(oldest):
        raise SchemaOutdatedError(
            f"schema {schema!r} was migrated for asyncq {oldest} or newer and this is {release}: upgrade asyncq here"
        )


def _parts(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:3])


def script(*, schema: str = "asyncq", since: int = 0) -> str:
    """Give the SQL of all steps after `since` as one text for psql, for databases that are migrated by hand."""
    checked_schema(schema)
    parts: list[str] = ["begin;", _LOCK % f"'{schema}'" + ";"]
    if since == 0:
        parts += [f'create schema if not exists "{schema}";', in_schema(_TABLE, schema).strip()]
    for step in migrations():
        if step.version > since:
            parts.append(in_schema(step.text, schema).strip())
            parts.append(in_schema(_NOTE, schema) % (step.version, f"'{step.name}'", f"'{step.oldest_release}'") + ";")
    return "\n\n".join([*parts, "commit;"]) + "\n"
