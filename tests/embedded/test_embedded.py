"""The embedded server: started, used again, shared, crashed, and gone with the process that started it."""

import os
import shutil
import socket
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import psycopg
import pytest

from asyncq import embedded
from asyncq.errors import ConfigurationError
from tests.eventually import eventually
from tests.processes import Process

FAST = {"fsync": "off"}

STARTER = """
import signal, sys
from pathlib import Path
from asyncq import embedded
server = embedded.start(Path(sys.argv[1]) if sys.argv[1:] else None, settings={"fsync": "off"})
print(server.data, server.dsn, "started", file=sys.stderr)
signal.pause()
"""


@pytest.fixture
def data() -> Generator[Path]:
    """A data directory that does not exist yet, where the server's account can reach it; pytest's are closed to it."""
    parent = Path(mkdtemp(prefix="asyncq-test-"))
    parent.chmod(0o755)
    yield parent / "data"
    shutil.rmtree(parent)


def ask(dsn: str, statement: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(statement.encode()).fetchone()
        return row[0] if row else None


def do(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statement.encode())


def lives(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn):
            return True
    except psycopg.OperationalError:
        return False


def test_a_temporary_server_leaves_nothing_behind() -> None:
    with embedded.start(settings={**FAST, "max_connections": "17"}) as server:
        assert ask(server.dsn, "SHOW max_connections") == "17"
        assert ask(server.dsn, "SHOW listen_addresses") == "127.0.0.1"
        assert ask(server.dsn, "SHOW server_encoding") == "UTF8"
        assert server.version == max(embedded.installed())
    assert not server.data.exists()
    assert not lives(server.dsn)
    server.stop()


def test_durable_unless_asked_otherwise() -> None:
    with embedded.start() as server:
        assert ask(server.dsn, "SHOW fsync") == "on"


def test_kept_data_is_there_the_next_time(data: Path) -> None:
    with embedded.start(data, settings=FAST) as server:
        do(server.dsn, "CREATE TABLE kept AS SELECT 1 AS x")
    with embedded.start(data, settings=FAST) as server:
        assert ask(server.dsn, "SELECT x FROM kept") == 1


def test_a_password_is_needed() -> None:
    with embedded.start(settings=FAST) as server:
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(host="127.0.0.1", port=server.port, user="postgres", dbname="postgres", password="wrong")
        assert (server.data / "asyncq.password").stat().st_mode & 0o077 == 0


def test_halt_and_resume_on_the_same_port() -> None:
    with embedded.start(settings=FAST) as server:
        do(server.dsn, "CREATE TABLE kept AS SELECT 1 AS x")
        for how in ("fast", "crash"):
            server.halt(how)
            assert not lives(server.dsn)
            server.resume()
            assert ask(server.dsn, "SELECT x FROM kept") == 1
        server.restart("crash")
        assert "database system was not properly shut down" in server.log.read_text()


def test_a_second_start_on_a_directory_uses_the_running_server(data: Path) -> None:
    with embedded.start(data, settings=FAST) as first:
        second = embedded.start(data)
        assert (second.dsn, second.owned) == (first.dsn, False)
        second.stop()
        assert lives(first.dsn)
        with pytest.raises(ConfigurationError, match="belongs to another process"):
            second.restart()
        with pytest.raises(ConfigurationError, match=f"at port {first.port} instead of 1"):
            embedded.start(data, port=1)


def test_many_starts_at_the_same_time_are_one_server(data: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        starting = [threads.submit(embedded.start, data, settings=FAST) for _ in range(4)]
    servers = [start.result() for start in starting]
    assert len({server.dsn for server in servers}) == 1
    assert sorted(server.owned for server in servers) == [False, False, False, True]
    for server in servers:
        server.stop()
    assert not lives(servers[0].dsn)


async def test_a_temporary_server_goes_with_its_killed_process(tmp_path: Path) -> None:
    process = Process(["-c", STARTER], logs=tmp_path)
    try:
        await process.wait_for("started")
        data, dsn, _ = process.stderr.split()
        assert lives(dsn)
        process.kill()
        await eventually(lambda: not Path(data).exists(), 10, describe="the data directory is gone")
        assert not lives(dsn)
    finally:
        process.reap()


async def test_a_kept_server_goes_with_its_killed_process_and_keeps_its_data(tmp_path: Path, data: Path) -> None:
    process = Process(["-c", STARTER, str(data)], logs=tmp_path)
    try:
        await process.wait_for("started")
        _, dsn, _ = process.stderr.split()
        do(dsn, "CREATE TABLE kept AS SELECT 1 AS x")
    finally:
        process.reap()
    await eventually(lambda: not lives(dsn), 10, describe="the server is gone")
    await eventually(lambda: not (data / "postmaster.pid").exists(), 10, describe="it has shut down in order")
    with embedded.start(data, settings=FAST) as server:
        assert ask(server.dsn, "SELECT x FROM kept") == 1


def test_a_left_over_pid_file_is_no_server(data: Path) -> None:
    with embedded.start(data, settings=FAST) as server:
        lines = (data / "postmaster.pid").read_text().splitlines()
    owner = data.stat()
    # A program of the server's own account has the number now: PostgreSQL would refuse to start.
    stranger = subprocess.Popen(["/bin/sh", "-c", "read -r line"], user=owner.st_uid, cwd="/", stdin=subprocess.PIPE)
    try:
        (data / "postmaster.pid").write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        os.chown(data / "postmaster.pid", owner.st_uid, owner.st_gid)
        with embedded.start(data, settings=FAST) as server:
            assert server.owned
            assert lives(server.dsn)
    finally:
        stranger.communicate()


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port: int = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match="could not bind"):
            embedded.start(port=port, settings=FAST)


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(ConfigurationError, match="no_such_setting"):
        embedded.start(settings={"no_such_setting": "1"})


def test_a_failed_start_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    data.mkdir(mode=0o755)
    data.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(data))
    with pytest.raises(ConfigurationError, match="no_such_setting"):
        embedded.start(settings={"no_such_setting": "1"})
    assert list(data.iterdir()) == []


def test_somebody_elses_directory_is_left_alone(data: Path) -> None:
    data.mkdir()
    (data / "letter.txt").write_text("dear")
    if os.geteuid() == 0:
        os.chown(data, 65534, 65534)
    with pytest.raises(ConfigurationError, match=r"not empty: letter\.txt"):
        embedded.start(data)
    assert [path.name for path in data.iterdir()] == ["letter.txt"]


def test_no_programs_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="there is no PostgreSQL in"):
        embedded.start(bin=tmp_path)
    monkeypatch.setattr(embedded, "installed", dict[int, Path])
    with pytest.raises(ConfigurationError, match=r"pip install 'asyncq\[embedded\]'"):
        embedded.start()


def test_another_major_refuses_the_data(data: Path) -> None:
    older, newest = min(embedded.installed()), max(embedded.installed())
    with embedded.start(data, bin=embedded.installed()[older], settings=FAST):
        pass
    with pytest.raises(ConfigurationError, match=f"is of PostgreSQL {older}, and these programs are of {newest}"):
        embedded.start(data)


def test_programs_that_the_servers_account_cannot_reach_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(embedded.installed()[18]).parent.parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(package, closed / package.name, symlinks=True, ignore=shutil.ignore_patterns("pginstall"))
    shutil.copytree(package.with_name(f"{package.name}.libs"), closed / f"{package.name}.libs", symlinks=True)
    monkeypatch.chdir(closed)
    with embedded.start(bin=closed / package.name / "pginstall18" / "bin", settings=FAST) as server:
        assert ask(server.dsn, "SELECT 1") == 1
        # An ordinary user's server is the user's own, and can reach what the user can.
        assert server.bin.is_relative_to(closed) == (os.geteuid() != 0)
        used = server.bin
    assert used.exists() == (os.geteuid() != 0)
