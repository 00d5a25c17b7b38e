"""`asyncq run-now`, `cancel` and `purge`, ids from standard input, and what is asked before much is changed."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.run import run
from tests.cli.test_dead_letters import dead, states

Connection = psycopg.Connection[Any]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


def later(db: Connection, *, queue: str = "q") -> int:
    row = db.execute(
        "insert into asyncq.jobs (queue, task, run_at) values (%s, 't', now() + interval '1 day') returning id",
        (queue,),
    ).fetchone()
    assert row is not None
    return row[0]


def due(db: Connection) -> list[int]:
    return [
        row[0]
        for row in db.execute("select id from asyncq.jobs where state = 'available' and run_at <= now() order by id")
    ]


def words(*ids: int) -> list[str]:
    return [str(each) for each in ids]


def test_run_now_and_cancel_print_the_ids_that_they_changed(dsn: str, db: Connection) -> None:
    first, second, third = later(db), later(db), later(db)
    foreign = later(db, queue="another")
    result = run("run-now", "q", *words(second, first, second, foreign), dsn=dsn)
    assert (result.code, result.lines) == (0, words(first, second))
    assert result.err == f"asyncq: not waiting for a later time in this queue: {foreign}\n"
    assert due(db) == [first, second]
    result = run("cancel", "q", *words(third, foreign), dsn=dsn)
    assert (result.code, result.lines) == (0, words(third))
    assert result.err == f"asyncq: not waiting in this queue: {foreign}\n"
    assert states(db) == {first: "available", second: "available", third: "cancelled", foreign: "available"}


@pytest.mark.parametrize("command", ["run-now", "cancel", "replay"])
def test_ids_come_from_standard_input(dsn: str, db: Connection, command: str) -> None:
    make = dead if command == "replay" else later
    first, second, third = make(db), make(db), make(db)
    given = f"{second}\n  {third}\t"
    assert run(command, "q", str(first), "-", "--dry-run", dsn=dsn, stdin=given).lines == [
        f"would {command} 3 jobs of queue q"
    ]
    assert run(command, "q", str(first), "-", dsn=dsn, stdin=given).lines == words(first, second, third)
    assert run(command, "q", "-", dsn=dsn, stdin="").code == 0


@pytest.mark.parametrize("command", ["run-now", "cancel", "replay"])
def test_many_ids_from_standard_input_need_a_yes(dsn: str, db: Connection, command: str) -> None:
    job_id = dead(db) if command == "replay" else later(db)
    before = (states(db), due(db))
    given = "\n".join(words(*range(job_id, job_id + 101)))
    result = run(command, "q", "-", dsn=dsn, stdin=given)
    assert (result.code, result.out) == (2, "")
    assert f"{command} 101 jobs of queue q?" in result.err
    assert "--yes" in result.err
    assert (states(db), due(db)) == before
    assert run(command, "q", "-", "--yes", dsn=dsn, stdin=given).lines == [str(job_id)]
    assert (states(db), due(db)) != before


@pytest.mark.parametrize("command", ["run-now", "cancel", "replay"])
@pytest.mark.parametrize(
    "wrong", ["x", "0", "1_0", "\u0661", "1.5", "9" * 5_000, "\x1b[m"], ids=lambda wrong: ascii(wrong)[:9]
)
def test_what_is_no_id_changes_nothing(dsn: str, db: Connection, command: str, wrong: str) -> None:
    job_id = dead(db) if command == "replay" else later(db)
    before = (states(db), due(db))
    for arguments, stdin in (((str(job_id), wrong), ""), (("-",), f"{job_id} {wrong}")):
        result = run(command, "q", *arguments, dsn=dsn, stdin=stdin)
        assert (result.code, result.out) == (2, "")
        assert "Traceback" not in result.err
        assert "\x1b" not in result.err
    assert (states(db), due(db)) == before


def test_purge_deletes_after_a_yes_what_it_is_told_to(dsn: str, db: Connection) -> None:
    old, cancelled, foreign = dead(db), dead(db, state="cancelled"), dead(db, queue="another")
    fresh = dead(db)
    db.execute("update asyncq.jobs set finished_at = now() where id = %s", (fresh,))
    everything = states(db)
    assert run("purge", "q", "--dry-run", dsn=dsn).lines == ["would delete 3 jobs of queue q"]
    refused = run("purge", "q", dsn=dsn)
    assert (refused.code, refused.out) == (2, "")
    assert "delete 3 jobs of queue q? There is no terminal" in refused.err
    assert states(db) == everything
    old_ones = ("--state", "discarded", "--older-than", "3600")
    assert run("purge", "q", *old_ones, "--dry-run", dsn=dsn).lines == ["would delete 1 job of queue q"]
    assert run("purge", "q", *old_ones, "--yes", dsn=dsn).lines == ["1"]
    assert states(db) == {each: state for each, state in everything.items() if each != old}
    assert run("purge", "q", "--yes", dsn=dsn).lines == ["2"]
    assert set(states(db)) == {foreign}
    assert cancelled not in states(db)
    for wrong in (("--state", "available"), ("--older-than", "-1"), ("--older-than", "x")):
        assert run("purge", "q", "--yes", *wrong, dsn=dsn).code == 2
    assert run("purge", "\x1b", "--yes", dsn=dsn).code == 2


def test_replay_of_all_says_how_many_without_doing_it(dsn: str, db: Connection) -> None:
    dead(db)
    dead(db, state="cancelled")
    before = states(db)
    assert run("replay", "q", "--dry-run", dsn=dsn).lines == ["would replay 1 job of queue q"]
    assert states(db) == before


def at_a_terminal(dsn: str, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command at a terminal at which somebody types an answer; gives its code and what is on the screen."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    process = subprocess.Popen(
        [sys.executable, "-m", "asyncq", *arguments, "--dsn", dsn],
        cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while more := os.read(ours, 4096):
            shown += more
    except OSError:
        pass  # Linux says so when the other end is closed
    os.close(ours)
    return process.wait(20), shown.decode()


@pytest.mark.parametrize("answer", ["y", "", "no"])
def test_a_terminal_is_asked_before_all_are_replayed(dsn: str, db: Connection, answer: str) -> None:
    job_id = dead(db)
    code, shown = at_a_terminal(dsn, answer, "replay", "q")
    assert code == 0
    assert "replay 1 job of queue q? [y/N]" in shown
    assert ("nothing was changed" in shown) == (answer != "y")
    assert states(db) == {job_id: "available" if answer == "y" else "discarded"}


def test_a_terminal_is_asked_before_a_purge(dsn: str, db: Connection) -> None:
    job_id = dead(db)
    assert "delete 1 job of queue q? [y/N]" in at_a_terminal(dsn, "n", "purge", "q")[1]
    assert states(db) == {job_id: "discarded"}


def test_a_terminal_that_has_said_yes_is_not_asked(dsn: str, db: Connection) -> None:
    dead(db)
    code, shown = at_a_terminal(dsn, "", "purge", "q", "--yes")
    assert (code, "[y/N]" in shown, states(db)) == (0, False, {})
