"""`asyncq defer`: put a job in from a shell."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.cli.run import run
from tests.conftest import chosen
from tests.servers import Servers


def only_job(dsn: str) -> dict[str, Any]:
    with psycopg.connect(dsn) as conn, conn.cursor(row_factory=dict_row) as cursor:
        [row] = cursor.execute("select * from asyncq.jobs").fetchall()
    return row


def count(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select count(*) from asyncq.jobs").fetchone()
    assert row is not None
    return row[0]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cli_tasks.py").write_text(
        "from datetime import timedelta\nfrom asyncq import Queue\n"
        "emails = Queue('emails', max_attempts=3, lease=timedelta(seconds=5))\n"
        "@emails.task(priority=7)\nasync def send(user_id: int, text: str = 'hello') -> None: ...\n"
    )
    return "cli_tasks"


@pytest.fixture(scope="module")
def shared_dsn(request: pytest.FixtureRequest, servers: Servers) -> Generator[str]:
    """A migrated database for the tests that try what is refused: nothing gets into it."""
    postgres = servers.shared(chosen(request.config))
    dsn = postgres.create_database()
    yield dsn
    postgres.drop_database(dsn)


def test_prints_the_id_of_the_job(dsn: str) -> None:
    result = run("defer", "app.tasks.send", dsn=dsn)
    row = only_job(dsn)
    assert (result.code, result.out) == (0, f"{row['id']}\n")
    assert "queue 'default'" in result.err
    assert (row["queue"], row["task"], row["args"]) == ("default", "app.tasks.send", {})
    assert (row["priority"], row["max_attempts"], row["lease_seconds"]) == (0, 10, 60.0)


def test_takes_every_option(dsn: str) -> None:
    result = run(
        "defer", "send", "--args", '{"user_id": 7, "text": "ü \\u00fc"}', "--queue", "emails", "--priority", "-5",
        "--max-attempts", "2", "--run-at", "2040-01-31T08:00:00+05:45", dsn=dsn,
    )  # fmt: skip
    assert result.code == 0, result.err
    row = only_job(dsn)
    assert (row["queue"], row["args"]) == ("emails", {"user_id": 7, "text": "ü ü"})
    assert (row["priority"], row["max_attempts"]) == (-5, 2)
    assert row["run_at"] == datetime(2040, 1, 31, 2, 15, tzinfo=UTC)


def test_a_delay_is_in_seconds(dsn: str) -> None:
    assert run("defer", "send", "--delay", "90.5", dsn=dsn).code == 0
    row = only_job(dsn)
    # From the clock, which a loaded machine lets run on within the statement.
    assert timedelta(seconds=90.5) <= row["run_at"] - row["created_at"] < timedelta(seconds=92)


def test_with_its_module_the_tasks_own_options_hold(dsn: str, module: str) -> None:
    assert run("defer", "cli_tasks.send", "--module", module, "--args", '{"user_id": 7}', dsn=dsn).code == 0
    row = only_job(dsn)
    assert (row["queue"], row["priority"], row["max_attempts"], row["lease_seconds"]) == ("emails", 7, 3, 5.0)
    assert row["args"] == {"user_id": 7}


def test_with_its_module_options_of_the_call_still_win(dsn: str, module: str) -> None:
    arguments = ("--args", '{"user_id": 7}', "--priority", "0", "--queue", "elsewhere")
    assert run("defer", "cli_tasks.send", "--module", f"{module}:emails", *arguments, dsn=dsn).code == 0
    row = only_job(dsn)
    assert (row["queue"], row["priority"]) == ("elsewhere", 0)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("{}", "user_id"),
        ('{"user_id": "x"}', "user_id"),
        ('{"user_id": 7, "more": 1}', "more"),
        ('{"user_id": 7, "text": "\\u0000"}', "NUL"),
    ],
)
def test_with_its_module_the_arguments_are_validated(shared_dsn: str, module: str, args: str, says: str) -> None:
    result = run("defer", "cli_tasks.send", "--module", module, "--args", args, dsn=shared_dsn)
    assert result.code == 2
    assert says in result.err
    assert count(shared_dsn) == 0


def test_with_a_module_an_unknown_task_is_refused(shared_dsn: str, module: str) -> None:
    result = run("defer", "cli_tasks.sned", "--module", module, dsn=shared_dsn)
    assert result.code == 2
    assert "'cli_tasks.sned'" in result.err


@pytest.mark.parametrize(
    "args",
    [
        "",
        "{",
        "[]",
        "1",
        "null",
        '"x"',
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": "\\u0000"}',
        '{"a\\u0000": 1}',
        '{"a": "\\ud800"}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
    ids=lambda args: args[:20],
)
def test_arguments_that_are_no_json_object_are_a_wrong_use(shared_dsn: str, args: str) -> None:
    result = run("defer", "t", "--args", args, dsn=shared_dsn)
    assert result.code == 2, result.err[:300]
    assert "args" in result.err
    assert len(result.err.splitlines()) == 1
    assert count(shared_dsn) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--priority", "99999"),
        ("--priority", "1.5"),
        ("--max-attempts", "0"),
        ("--max-attempts", "40000"),
        ("--delay", "-1"),
        ("--delay", "nan"),
        ("--delay", "1e300"),
        ("--run-at", "tomorrow"),
        ("--run-at", "2040-01-31T08:00:00"),
        ("--run-at", "2040-01-31"),
        ("--queue", ""),
        ("--queue", "x" * 129),
        ("--queue", "a\nb"),
        ("--queue", "\udcff"),
        ("--delay", "1", "--run-at", "2040-01-31T08:00:00Z"),
    ],
    ids=lambda arguments: ascii(" ".join(arguments)[:40]),
)
def test_wrong_options_are_a_wrong_use(shared_dsn: str, arguments: tuple[str, ...]) -> None:
    result = run("defer", "t", *arguments, dsn=shared_dsn)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert count(shared_dsn) == 0


@pytest.mark.parametrize("task", ["", "x" * 129, "a\nb", "\x1b[31m", "\udcff"], ids=ascii)
def test_a_name_that_cannot_be_is_a_wrong_use(shared_dsn: str, task: str) -> None:
    result = run("defer", task, dsn=shared_dsn)
    assert result.code == 2
    assert "task" in result.err
    assert "\x1b" not in result.err
    assert count(shared_dsn) == 0


@pytest.mark.parametrize(
    "name",
    ["'; drop table asyncq.jobs; --", "%s", "{}", "$1", "a b", "/../?%2f", "\N{GRINNING FACE}" * 128, "\u202eabc"],
)
def test_odd_names_are_stored_as_they_are(dsn: str, name: str) -> None:
    assert run("defer", name, "--queue", name, dsn=dsn).code == 0
    row = only_job(dsn)
    assert (row["task"], row["queue"]) == (name, name)
