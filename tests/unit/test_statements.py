"""The statements under `sql/`: found, read, put into one schema, and written as the project wants them."""

import inspect
import itertools
import re
from importlib.resources.abc import Traversable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncq import ConfigurationError
from asyncq.db import activity, defer, doctor, explain, history, jobs, quiet, rights, workers
from asyncq.db import inspect as inspecting
from asyncq.db.migrate import migrations, script
from asyncq.db.statements import checked_schema, in_schema, load, sql_folder

NAMES = sorted(
    f"{folder.name}/{file.name.removesuffix('.sql')}"
    for folder in (sql_folder() / "queries").iterdir()
    for file in folder.iterdir()
    if file.name.endswith(".sql")
)


def text_of(name: str) -> str:
    file: Traversable = sql_folder() / "queries" / f"{name}.sql"
    return file.read_text(encoding="utf-8")


def test_each_file_is_used_once_and_there_is_none_besides() -> None:
    modules = (activity, defer, doctor, explain, history, inspecting, jobs, quiet, rights, workers)
    loaded = re.findall(r'load\("(\w+/\w+)"', "".join(map(inspect.getsource, modules)))
    assert sorted(loaded) == NAMES


OF_THE_CLUSTER = {"quiet/pressure", "doctor/server", "doctor/horizon"}
"""They ask about what is not of one schema: the lock of notifications, settings, open transactions."""


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_names_the_schema_and_nothing_else(name: str) -> None:
    text = load(name, "other")
    assert ('"other".' in text) == (name not in OF_THE_CLUSTER)
    assert "asyncq" not in text
    assert load(name, "asyncq").replace('"asyncq"', '"other"') == text


@pytest.mark.parametrize("name", ["jobs/claim", "jobs/look", "jobs/complete"])
def test_another_part_can_take_the_place_of_one(name: str) -> None:
    assert "job_history" not in load(name, "asyncq")
    assert "job_history" in load(name, "asyncq", **jobs.RECORDED)


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_is_sent_without_its_comments(name: str) -> None:
    assert "--" not in load(name, "asyncq")
    assert load(name, "asyncq").strip()


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_lists_its_columns(name: str) -> None:
    body = load(name, "asyncq")
    assert re.findall(r"returning\s+\*|\bj\.\*", body) == []
    # "select *" only from what the statement itself was given.
    assert re.findall(r"select\s+\*\s+from\s+(?!unnest)", body) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_says_what_it_is_for(name: str) -> None:
    lines = text_of(name).splitlines()
    header = "\n".join(itertools.takewhile(lambda line: line.startswith("--"), lines))
    assert header.startswith("-- ")
    for word in ("-- Params:", "-- Returns:"):
        assert word in header
    named = set(re.findall(r"%\((\w+)\)s", load(name, "asyncq")))
    if "as defer" not in header:
        for param in named:
            assert re.search(rf"\b{param}\b", header), f"{param} is not described"


@pytest.mark.parametrize("name", ["a", "_", "a1", "asyncq", "x" * 63, "select", "apg_x"])
def test_schemas_that_may_be(name: str) -> None:
    assert checked_schema(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "a-b",
        "a.b",
        "a b",
        "1",
        "ä",
        "x" * 64,
        "pg_",
        "pg_temp",
        'a"',
        "a'",
        "a;",
        "a\n",
        "\na",
        "a\x00",
        "%s",
        "{}",
        "\uff41",
        "٣a",
        "a٣",
    ],
)
def test_schemas_that_may_not_be(name: str) -> None:
    with pytest.raises(ConfigurationError, match="schema"):
        checked_schema(name)
    with pytest.raises(ConfigurationError, match="schema"):
        load("jobs/claim", name)
    with pytest.raises(ConfigurationError, match="schema"):
        script(schema=name)


@pytest.mark.parametrize("name", [None, 5, b"a", ["a"]])
def test_a_schema_is_named_by_a_string(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="schema"):
        checked_schema(name)


@given(st.text())
def test_whatever_passes_needs_no_more_than_quotes(name: str) -> None:
    try:
        checked_schema(name)
    except ConfigurationError:
        return
    assert re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name, re.ASCII)
    assert len(name.encode()) <= 63


def test_only_the_token_is_replaced() -> None:
    assert in_schema("select asyncq.x, 'asyncq', asyncq", "s") == "select \"s\".x, 'asyncq', asyncq"


def test_a_statement_that_is_none_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load("jobs/no_such_statement", "asyncq")


def test_migrations_are_numbered_from_one_without_a_gap_and_forward_only() -> None:
    steps = migrations()
    assert [step.version for step in steps] == list(range(1, len(steps) + 1))
    for step in steps:
        assert re.fullmatch(r"\d+\.\d+\.\d+", step.oldest_release)
        assert not re.search(r"^\s*(begin|commit|rollback)\s*;", step.text, re.MULTILINE | re.IGNORECASE)
        assert not re.search(r"\bconcurrently\b", step.text, re.IGNORECASE), "it would not run in a transaction"


def test_the_script_leaves_out_what_is_there() -> None:
    whole, rest = script(), script(since=migrations()[-1].version)
    assert "create schema" in whole
    assert "create schema" not in rest
    assert [line for line in rest.splitlines() if line and "lock" not in line] == ["begin;", "commit;"]
    assert "asyncq." not in script(schema="other").replace("-- ", "")


def test_each_part_serves_several_places_and_says_what_it_is_for() -> None:
    parts = {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8") for file in (sql_folder() / "parts").iterdir()
    }
    texts = [*map(text_of, NAMES), *parts.values()]  # a part may stand on another
    used = re.findall(r"^-- include (\w+),?$", "\n".join(texts), re.MULTILINE)
    # In the place of another one, where it is asked for.
    for instead in (jobs.RECORDED, history.OUTLINED):
        used += [part for place, part in instead.items() for _ in range(used.count(place))]
    assert set(used) == set(parts)
    assert min(map(used.count, parts)) > 1
    assert all(text.startswith("-- ") for text in parts.values())
