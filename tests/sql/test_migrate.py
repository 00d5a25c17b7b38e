"""Migrations: once however many try, nothing half done, in any schema that may be named, and the same by hand."""

import re
from collections.abc import AsyncGenerator, Generator
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import errors, sql

from asyncq import ConfigurationError, SchemaOutdatedError
from asyncq.db.migrate import applied, check, migrate, migrations, missing, script
from tests.eventually import eventually
from tests.servers import Postgres, majors, with_options
from tests.sql.rows import rows, value

Connection = psycopg.AsyncConnection[Any]

EVERYTHING = [migration.version for migration in migrations()]


@pytest.fixture
async def bare(empty_dsn: str) -> AsyncGenerator[Connection]:
    """A connection to a database that nobody has migrated."""
    async with await psycopg.AsyncConnection.connect(empty_dsn, autocommit=True) as conn:
        yield conn


async def catalog(conn: Connection, schema: str) -> dict[str, list[tuple[Any, ...]]]:
    """Tell everything that a schema holds, its own name left out."""
    found = {
        "tables": await rows(
            conn,
            "select c.relname, c.relkind, c.relpersistence, c.reloptions, obj_description(c.oid, 'pg_class'),"
            " (select reloptions from pg_class t where t.oid = c.reltoastrelid)"
            " from pg_class c where c.relnamespace = %s::regnamespace order by 1",
            schema,
        ),
        "columns": await rows(
            conn,
            "select attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,"
            " attnum, pg_get_expr(adbin, adrelid), col_description(attrelid, attnum) from pg_attribute"
            " join pg_class c on c.oid = attrelid left join pg_attrdef d on adrelid = attrelid and adnum = attnum"
            " where c.relnamespace = %s::regnamespace and attnum > 0 order by 1, attnum",
            schema,
        ),
        "constraints": await rows(
            conn,
            "select conname, contype, pg_get_constraintdef(oid) from pg_constraint"
            " where connamespace = %s::regnamespace order by 1",
            schema,
        ),
        "indexes": await rows(
            conn, "select indexname, indexdef from pg_indexes where schemaname = %s order by 1", schema
        ),
        "functions": await rows(
            conn,
            "select proname, pg_get_functiondef(oid), obj_description(oid, 'pg_proc') from pg_proc"
            " where pronamespace = %s::regnamespace order by 1",
            schema,
        ),
        "rights": await rows(
            conn,
            "select relname, relacl::text from pg_class"
            " where relnamespace = %s::regnamespace and relkind = 'r' order by 1",
            schema,
        ),
    }
    return {
        what: [
            tuple(re.sub(rf'"?\b{schema}\b"?\.', ".", each) if isinstance(each, str) else each for each in row)
            for row in all_of
        ]
        for what, all_of in found.items()
    }


async def test_brings_an_empty_database_up_and_then_has_nothing_to_do(empty_dsn: str, bare: Connection) -> None:
    assert [step.version for step in await missing(empty_dsn)] == EVERYTHING
    assert [step.version for step in await migrate(empty_dsn)] == EVERYTHING
    assert await missing(empty_dsn) == []
    assert await migrate(empty_dsn) == []
    assert sorted(await applied(bare, "asyncq")) == EVERYTHING
    assert await value(bare, "select asyncq.defer('t')") == 1


@majors(12, 18)
@pytest.mark.parametrize("level", ["read committed", "serializable"])
async def test_twelve_at_once_apply_it_once(empty_dsn: str, bare: Connection, level: str) -> None:
    await bare.execute(
        sql.SQL("alter database {} set default_transaction_isolation = {}").format(
            sql.Identifier(bare.info.dbname), sql.Literal(level)
        )
    )
    done: list[list[int]] = []

    async def one() -> None:
        done.append([step.version for step in await migrate(empty_dsn)])

    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(one)
    assert sorted(version for versions in done for version in versions) == EVERYTHING, "each step is applied once"
    assert sorted(await applied(bare, "asyncq")) == EVERYTHING


async def test_killed_in_the_middle_it_leaves_nothing_and_the_next_completes(empty_dsn: str, bare: Connection) -> None:
    # A migration stops after its last function, with the tables made, for as long as this lock is held.
    await bare.execute("""
        create function hold() returns event_trigger language plpgsql as
            $$ begin perform pg_advisory_xact_lock(1, 1); end $$;
        create event trigger hold on ddl_command_end when tag in ('CREATE FUNCTION') execute function hold();
        select pg_advisory_lock(1, 1);
    """)

    async def killed() -> None:
        with pytest.raises(psycopg.OperationalError):
            await migrate(with_options(empty_dsn, application_name="to be killed"))

    async def stands() -> bool:
        return await value(bare, "select count(*) from pg_locks where not granted and locktype = 'advisory'") == 1

    async with anyio.create_task_group() as group:
        group.start_soon(killed)
        await eventually(stands, describe="the migration stands in the middle")
        await bare.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'to be killed'"
        )
    await bare.execute("drop event trigger hold; select pg_advisory_unlock(1, 1)")
    assert await value(bare, "select count(*) from pg_namespace where nspname = 'asyncq'") == 0
    assert [step.version for step in await migrate(empty_dsn)] == EVERYTHING


@majors(12, 18)
@pytest.mark.parametrize("schema", ["asyncq", "second"])
async def test_the_script_makes_the_same_schema(
    postgres: Postgres, empty_dsn: str, bare: Connection, schema: str
) -> None:
    await bare.execute(script(schema=schema).encode())
    by_hand = await catalog(bare, schema)
    other = postgres.create_database(migrated=False)
    await migrate(other, schema=schema)
    async with await psycopg.AsyncConnection.connect(other) as conn:
        assert by_hand == await catalog(conn, schema)
    assert len(by_hand["columns"]) > 20
    assert await migrate(empty_dsn, schema=schema) == []
    postgres.drop_database(other)


async def test_two_schemas_in_one_database_are_alike_and_independent(empty_dsn: str, bare: Connection) -> None:
    await migrate(empty_dsn)
    await migrate(empty_dsn, schema="second")
    first, second = await catalog(bare, "asyncq"), await catalog(bare, "second")
    assert first == second
    await bare.execute("select second.defer('t')")
    assert await value(bare, "select count(*) from asyncq.jobs") == 0
    await bare.execute("drop schema second cascade")
    await bare.execute("select asyncq.defer('t')")


async def test_every_table_column_and_function_is_explained(dsn: str, conn: Connection) -> None:
    bare_ones = [
        *await rows(
            conn,
            "select c.relname, a.attname from pg_class c left join pg_attribute a on a.attrelid = c.oid and attnum > 0"
            " where c.relnamespace = 'asyncq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition"
            " and (obj_description(c.oid, 'pg_class') is null or col_description(c.oid, attnum) is null)",
        ),
        *await rows(
            conn,
            "select proname from pg_proc where pronamespace = 'asyncq'::regnamespace"
            " and obj_description(oid, 'pg_proc') is null",
        ),
    ]
    assert bare_ones == []


@pytest.mark.parametrize("name", ["a", "_", "q1", "user", "select", "x" * 63, "asyncq_2"])
async def test_names_a_schema_may_have(empty_dsn: str, bare: Connection, name: str) -> None:
    await migrate(empty_dsn, schema=name)
    await check(bare, name, "99.0.0")
    await bare.execute(sql.SQL("select {}.defer('t')").format(sql.Identifier(name)))
    assert await migrate(empty_dsn, schema=name) == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "MyApp",
        "a-b",
        "a.b",
        "a b",
        "1a",
        "ä",
        "x" * 64,
        "pg_x",
        "pg_catalog",
        'x"; drop table canary; --',
        "x'; drop table canary; --",
        "x; drop table canary",
        "%s",
        "{}",
        "$1",
        "a\nb",
        "a\n",
        "a\x00",
        None,
        5,
        b"a",
    ],
)
async def test_names_a_schema_may_not_have(shared_dsn: str, refusing: Connection, name: Any) -> None:
    await refusing.execute("create table if not exists canary ()")
    await refusing.commit()
    before = await rows(refusing, "select nspname from pg_namespace order by 1")
    for call in (migrate(shared_dsn, schema=name), missing(shared_dsn, schema=name), applied(refusing, name)):
        with pytest.raises(ConfigurationError, match="schema"):
            await call
    with pytest.raises(ConfigurationError, match="schema"):
        script(schema=name)
    assert await rows(refusing, "select nspname from pg_namespace order by 1") == before
    assert await value(refusing, "select count(*) from canary") == 0


@pytest.fixture
def role(postgres: Postgres) -> Generator[str]:
    """A role that may log in, and nothing more."""
    postgres.execute("create role plain login password 'plain'")
    yield "plain"
    postgres.execute("drop role if exists plain")


async def test_a_schema_made_beforehand_for_a_role_that_may_not_create_one(postgres: Postgres, role: str) -> None:
    dsn = postgres.create_database(migrated=False)
    plain = with_options(dsn, user=role, password=role)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as owner:
        await owner.execute("revoke all on schema public from public")
        with pytest.raises(errors.InsufficientPrivilege):
            await migrate(plain)
        await owner.execute("create schema asyncq authorization plain")
        assert [step.version for step in await migrate(plain)] == EVERYTHING
        assert await migrate(plain) == []
        assert await missing(plain) == []
        assert await value(
            owner, "select array_agg(distinct tableowner::text) from pg_tables where schemaname = 'asyncq'"
        ) == ["plain"]
    postgres.drop_database(dsn)


async def test_a_role_with_rights_on_the_data_alone_can_defer_and_check(
    postgres: Postgres, role: str, dsn: str, conn: Connection
) -> None:
    await conn.execute("""
        revoke all on schema public from public;
        grant usage on schema asyncq to plain;
        grant select, insert, update, delete on asyncq.jobs to plain;
        grant select on asyncq.migrations to plain;
    """)
    async with await psycopg.AsyncConnection.connect(with_options(dsn, user=role, password=role)) as plain:
        await check(plain, "asyncq", "99.0.0")
        await plain.execute("select asyncq.defer('t')")
    assert await value(conn, "select count(*) from asyncq.jobs") == 1
    await conn.execute("drop owned by plain")


async def test_check_refuses_a_missing_schema(bare: Connection) -> None:
    with pytest.raises(SchemaOutdatedError, match="asyncq migrate"):
        await check(bare, "asyncq", "1.0.0")


async def test_check_refuses_a_schema_that_lacks_a_step(conn: Connection) -> None:
    await conn.execute("update asyncq.migrations set version = 9999 where version = 1")
    with pytest.raises(SchemaOutdatedError, match=r"lacks migration.* 1: run 'asyncq migrate'"):
        await check(conn, "asyncq", "1.0.0")


@pytest.mark.parametrize(
    ("oldest", "release", "fits"),
    [
        ("1.2.3", "1.2.3", True),
        ("1.2.3", "1.2.4", True),
        ("1.2.3", "1.10.0", True),
        ("1.2.3", "2.0.0", True),
        ("1.2.3", "1.2.2", False),
        ("1.10.0", "1.9.9", False),
        ("99.0.0", "1.2.3", False),
    ],
)
async def test_check_refuses_a_schema_that_wants_a_newer_release(
    conn: Connection,
    oldest: str,
    release: str,
    fits: bool,  # noqa: FBT001
) -> None:
    await conn.execute(
        "insert into asyncq.migrations (version, name, oldest_release) values (9999, 'of the future', %s)", (oldest,)
    )
    if fits:
        await check(conn, "asyncq", release)
    else:
        with pytest.raises(SchemaOutdatedError, match=re.escape(oldest)):
            await check(conn, "asyncq", release)


async def test_steps_of_a_newer_release_are_left_alone(dsn: str, conn: Connection) -> None:
    await conn.execute(
        "insert into asyncq.migrations (version, name, oldest_release) values (9999, 'of the future', '0.0.1')"
    )
    assert await migrate(dsn) == []
    assert await missing(dsn) == []


@pytest.mark.parametrize("path", ["", "shadow, pg_catalog"])
async def test_the_search_path_decides_nothing(empty_dsn: str, bare: Connection, path: str) -> None:
    await bare.execute("""
        create schema shadow;
        create table shadow.migrations (version int, name text, oldest_release text);
        create function shadow.now() returns timestamptz language sql as $$ select '1999-01-01'::timestamptz $$;
    """)
    shadowed = with_options(empty_dsn, options=f"-c search_path={path.replace(' ', '')}")
    assert [step.version for step in await migrate(shadowed)] == EVERYTHING
    await bare.execute("select asyncq.defer('t')")
    assert await value(bare, "select count(*) from asyncq.jobs where created_at > '2024-01-01'") == 1


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_databases_of_other_encodings(postgres: Postgres, encoding: str) -> None:
    name = f"encoded_{encoding.lower()}"
    postgres.execute(
        sql.SQL("create database {} template template0 encoding {} locale 'C'").format(
            sql.Identifier(name), sql.Literal(encoding)
        )
        if postgres.major >= 13
        else sql.SQL("create database {} template template0 encoding {} lc_collate 'C' lc_ctype 'C'").format(
            sql.Identifier(name), sql.Literal(encoding)
        )
    )
    dsn = postgres.dsn_of(name)
    await migrate(dsn)
    async with await psycopg.AsyncConnection.connect(with_options(dsn, client_encoding="UTF8")) as conn:
        await conn.execute("select asyncq.defer('é')")
    postgres.drop_database(dsn)
