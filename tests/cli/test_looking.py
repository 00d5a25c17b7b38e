"""`asyncq status`, `asyncq jobs` and `asyncq show`."""

import builtins
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from asyncq import QueueStats
from asyncq.cli import table
from tests.cli.run import run
from tests.cli.test_dead_letters import HOSTILE
from tests.eventually import eventually
from tests.processes import Process


@pytest.fixture
def db(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


def put(db: psycopg.Connection[Any], **columns: Any) -> int:
    given: dict[str, Any] = {
        "queue": "q", "task": "t", "args": "{}", "state": "available", "last_error": None, "finished_at": None,
        "run_at": "2024-01-01 00:00+00", "created_at": "2024-01-01 00:00+00",
    }  # fmt: skip
    row = db.execute(
        """
        insert into asyncq.jobs (queue, task, args, state, last_error, finished_at, run_at, created_at) values
        (%(queue)s, %(task)s, %(args)s, %(state)s, %(last_error)s, %(finished_at)s, %(run_at)s, %(created_at)s)
        returning id
        """,
        {**given, **columns},
    ).fetchone()
    assert row is not None
    return row[0]


ENDED = {"state": "discarded", "finished_at": "2024-05-06 07:08:09+00", "last_error": "Traceback\n  x\nValueError: no"}


# --- status -----------------------------------------------------------------------------------------------------------


def test_status_counts_each_queue(dsn: str, db: psycopg.Connection[Any]) -> None:
    put(db, queue="a long name")
    for _ in range(2):
        put(db, run_at="infinity")
    put(db, **ENDED)
    db.execute("update asyncq.jobs set run_at = now() - interval '125 seconds' where queue = 'a long name'")
    result = run("status", dsn=dsn)
    assert (result.code, result.err) == (0, "")
    assert result.lines == [
        "queue        due  oldest  scheduled  running  discarded  cancelled",
        "-----------  ---  ------  ---------  -------  ---------  ---------",
        "a long name    1   2 min          0        0          0          0",
        "q              0       -          2        0          1          0",
    ]
    [one, none] = map(json.loads, run("status", "--queue", "q", "--queue", "none", "--json", dsn=dsn).lines[::-1])
    counts = {"due": 0, "scheduled": 2, "running": 0, "discarded": 1, "cancelled": 0}
    assert one == {"queue": "q", "oldest_due_seconds": None, **counts}
    assert (none["queue"], none["scheduled"]) == ("none", 0)


def test_status_of_nothing_and_beyond_the_limit(
    dsn: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("status", dsn=dsn).lines == ["no jobs in any queue"]
    monkeypatch.setattr(QueueStats, "LIMIT", 2)
    for _ in range(3):
        put(db, run_at="infinity")
    assert run("status", dsn=dsn).lines[-1].split() == ["q", "0", "-", "2+", "0", "0", "0"]


async def test_status_watches_until_it_is_interrupted(dsn: str, db: psycopg.Connection[Any], tmp_path: Path) -> None:
    process = Process(["-m", "asyncq", "status", "--watch", "0.1", "--json"], logs=tmp_path, env={"ASYNCQ_DSN": dsn})
    try:
        put(db)
        await eventually(lambda: '"due": 1' in process.stdout, within=20)
        put(db)
        await eventually(lambda: '"due": 2' in process.stdout)
        os.kill(process.pid, signal.SIGINT)
        assert await process.wait() == 130
        assert process.stderr == ""
    finally:
        process.reap()


@pytest.mark.parametrize(
    "arguments",
    [("--watch", "0"), ("--watch", "nan"), ("--watch", "x"), ("--queue", ""), ("--queue", "\x1b[m"), ("--schema", "A")],
)
def test_a_wrong_use_of_status(dsn: str, arguments: tuple[str, ...]) -> None:
    result = run("status", *arguments, dsn=dsn)
    assert (result.code, result.out) == (2, "")
    assert "\x1b" not in result.err


# --- jobs -------------------------------------------------------------------------------------------------------------


def listed(dsn: str, *arguments: str) -> list[int]:
    result = run("jobs", "q", "--json", *arguments, dsn=dsn)
    assert (result.code, result.err) == (0, "")
    return [json.loads(line)["id"] for line in result.lines]


def test_jobs_are_listed_the_newest_first_and_filtered(dsn: str, db: psycopg.Connection[Any]) -> None:
    first = put(db, args='{"user_id": 17, "name": "ada"}', task="app.send")
    second = put(db, created_at="infinity", run_at="infinity")
    dead = put(db, **ENDED)
    put(db, queue="another")
    result = run("jobs", "q", dsn=dsn)
    heading, _, *lines = [" ".join(line.split()) for line in result.lines]
    assert heading == "id state attempts run at task and arguments error"
    assert lines == [
        f"{dead} discarded 0 of 10 2024-01-01 00:00:00+00:00 t({{}}) ValueError: no",
        f"{second} available 0 of 10 9999-12-29 00:00:00+00:00 t({{}})",
        f'{first} available 0 of 10 2024-01-01 00:00:00+00:00 app.send({{"name": "ada", "user_id": 17}})',
    ]
    assert listed(dsn) == [dead, second, first]
    assert listed(dsn, "--state", "available") == [second, first]
    assert listed(dsn, "--task", "app.send") == [first]
    assert listed(dsn, "--older-than", "60") == [dead, first]
    assert listed(dsn, "--arg", "user_id=17", "--arg", 'name="ada"') == [first]
    assert listed(dsn, "--arg", "user_id=17", "--arg", 'name="eve"') == []
    assert listed(dsn, "--limit", "1") == [dead]
    assert listed(dsn, "--before", str(second)) == [first]
    assert run("jobs", "none", dsn=dsn).lines == ["no such jobs in queue none"]


def test_jobs_are_looked_for_beyond_one_page(dsn: str, db: psycopg.Connection[Any]) -> None:
    rare = put(db, task="rare")
    db.execute("insert into asyncq.jobs (queue, task) select 'q', 't' from generate_series(1, 100001)")
    assert listed(dsn, "--task", "rare") == [rare]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--limit", "0"),
        ("--limit", "100001"),
        ("--before", "0"),
        ("--older-than", "-1"),
        ("--older-than", "nan"),
        ("--state", "done"),
        ("--task", ""),
        ("--arg", "user_id"),
        ("--arg", "name=ada"),
        ("--arg", "x=NaN"),
        ("--arg", 'x="\\u0000"'),
    ],
    ids=" ".join,
)
def test_a_wrong_filter_is_a_wrong_use(dsn: str, arguments: tuple[str, str]) -> None:
    result = run("jobs", "q", f"{arguments[0]}={arguments[1]}", dsn=dsn)
    assert (result.code, result.out) == (2, "")
    assert "Traceback" not in result.err


# --- show -------------------------------------------------------------------------------------------------------------


def test_show_tells_all(dsn: str, db: psycopg.Connection[Any]) -> None:
    job_id, second = put(db, **ENDED, args='{"name": "ü", "n": 1e400}'), put(db, queue="another")
    result = run("show", str(job_id), str(second), str(second), "999999", dsn=dsn)
    assert result.code == 0
    assert result.err == "asyncq: there are no such jobs: 999999\n"
    huge = "1" + "0" * 400
    assert result.out.startswith(
        f"""job           {job_id}
queue         q
task          t
args          {{"n": {huge}, "name": "ü"}}
state         discarded
attempts      0 of 10
priority      0
lease         60 s
created at    2024-01-01 00:00:00+00:00
run at        2024-01-01 00:00:00+00:00
finished at   2024-05-06 07:08:09+00:00
last error
    Traceback
      x
    ValueError: no

job           {second}
queue         another
"""
    )
    [line] = run("show", str(job_id), "--json", dsn=dsn).lines
    assert f'"args": {{"n": {huge}, "name": "\\u00fc"}}' in line
    assert json.loads(line)["last_error"] == ENDED["last_error"]
    for wrong in ("0", "x", str(2**63)):
        assert run("show", wrong, dsn=dsn).code == 2


# --- What jobs hold, and where it is shown ----------------------------------------------------------------------------


def test_what_jobs_hold_cannot_steer_the_terminal(dsn: str, db: psycopg.Connection[Any]) -> None:
    visible = "[bold]<img src=x> %2f"
    job_id = put(db, queue="\u202eq", task=visible, args=Jsonb({HOSTILE: HOSTILE}), **{**ENDED, "last_error": HOSTILE})
    db.execute("update asyncq.jobs set locked_by = null")
    for arguments in (("status",), ("jobs", "\u202eq"), ("show", str(job_id))):
        for more in ((), ("--json",)):
            result = run(*arguments, *more, dsn=dsn)
            assert result.code == 0
            assert visible in result.out or "status" in arguments
            steering = {each for each in result.out if not each.isprintable()}
            assert steering == {"\n"}, (arguments, more)
            if more:
                assert all(map(json.loads, result.lines))


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_drawn_table_and_without_rich_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("[red]x", "1"), ("\x1b[31m", "22")]
    monkeypatch.setattr(sys, "stdout", screen := Screen())
    table.show(("name", "n"), rows, numbers=1)
    assert "┃" in screen.getvalue()
    assert "[red]x" in screen.getvalue()
    assert "\\x1b[31m" in screen.getvalue()
    importing = builtins.__import__

    def without_rich(name: str, *arguments: Any) -> Any:
        if name.startswith("rich"):
            raise ImportError(name)
        return importing(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    monkeypatch.setattr(sys, "stdout", screen := Screen())
    table.show(("name", "n"), rows, numbers=1)
    assert screen.getvalue() == "name       n\n--------  --\n[red]x     1\n\\x1b[31m  22\n"
