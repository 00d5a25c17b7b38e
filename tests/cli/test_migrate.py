"""`asyncq migrate`: apply, check, or print."""

import psycopg

from asyncq.db.migrate import migrations
from tests.cli.run import run

FIRST = f"{migrations()[0].version:04} {migrations()[0].name}"


def tables(dsn: str, schema: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        found = conn.execute("select tablename from pg_tables where schemaname = %s order by 1", (schema,))
        return [row[0] for row in found]


def test_applies_what_is_missing_once_and_says_so(empty_dsn: str) -> None:
    first, second = run("migrate", dsn=empty_dsn), run("migrate", dsn=empty_dsn)
    assert (first.code, first.err) == (0, "")
    assert first.lines[0] == f"applied to schema asyncq: {FIRST}"
    assert first.lines[-1] == "schema asyncq is up to date"
    assert (second.code, second.lines) == (0, ["schema asyncq is up to date"])
    assert "jobs" in tables(empty_dsn, "asyncq")


def test_check_changes_nothing_and_tells_by_its_exit_code(empty_dsn: str) -> None:
    result = run("migrate", "--check", dsn=empty_dsn)
    assert result.code == 3
    assert f"missing in schema asyncq: {FIRST}" in result.lines
    assert tables(empty_dsn, "asyncq") == []
    run("migrate", dsn=empty_dsn)
    assert run("migrate", "--check", dsn=empty_dsn).code == 0


def test_another_schema_is_another_one(dsn: str) -> None:
    assert run("migrate", "--check", "--schema", "second", dsn=dsn).code == 3
    assert run("migrate", "--schema", "second", dsn=dsn).code == 0
    assert run("migrate", "--check", "--schema", "second", dsn=dsn).code == 0
    assert "jobs" in tables(dsn, "second")


def test_sql_without_a_database_is_all_of_it_and_makes_what_migrate_makes(empty_dsn: str) -> None:
    printed = run("migrate", "--sql")
    assert (printed.code, printed.err) == (0, "")
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(printed.out.encode())
    assert run("migrate", "--check", dsn=empty_dsn).code == 0
    assert run("defer", "t", dsn=empty_dsn).code == 0


def test_sql_with_a_database_is_what_it_lacks_and_applies_nothing(empty_dsn: str) -> None:
    printed = run("migrate", "--sql", "--schema", "second", dsn=empty_dsn)
    assert printed.code == 0
    assert tables(empty_dsn, "second") == []
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(printed.out.encode())
    nothing = run("migrate", "--sql", "--schema", "second", dsn=empty_dsn)
    assert nothing.code == 0
    # It can still be piped into psql.
    assert all(line.startswith("--") for line in nothing.lines)


def test_sql_and_check_exclude_each_other(empty_dsn: str) -> None:
    assert run("migrate", "--sql", "--check", dsn=empty_dsn).code == 2


def test_a_schema_that_may_not_be_is_refused(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("create table canary ()")
        for schema in ("MyApp", "a-b", 'x"; drop table canary; --', "%s", "{}", "pg_x", "x" * 64, ""):
            for arguments in (("migrate",), ("migrate", "--check"), ("migrate", "--sql"), ("discarded", "q")):
                result = run(*arguments, "--schema", schema, dsn=empty_dsn)
                assert result.code == 2, (schema, result)
                assert "schema" in result.err
                assert len(result.err.splitlines()) == 1
        assert conn.execute("select count(*) from canary").fetchone() == (0,)
        assert conn.execute("select count(*) from pg_tables where tablename = 'jobs'").fetchone() == (0,)
