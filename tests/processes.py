"""Real worker processes for the tests: `python -m asyncq worker …`, signals and exit codes included."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests.eventually import eventually

__all__ = ["Process", "WorkerProcess"]

ROOT = Path(__file__).parent.parent

READY = "worker ready"


class Process:
    """A Python process whose stdout and stderr go to files; whoever starts it calls `reap` in the end."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        logs: Path,
        env: Mapping[str, str] = MappingProxyType({}),
        paths: Sequence[Path] = (),
        name: str = "process",
    ) -> None:
        """Start `python` with these arguments.

        Args:
            arguments: what follows `python`.
            logs: the directory for `<name>.out` and `<name>.err`.
            env: added to the environment of the tests, from which PG… and ASYNCQ_… variables have been removed.
            paths: directories whose modules the process can import, beside those of the repository.
            name: what the files are named after, and the failure messages speak of.
        """
        self.name = name
        self.stdout_file = logs / f"{name}.out"
        self.stderr_file = logs / f"{name}.err"
        inherited = {
            variable: value
            for variable, value in os.environ.items()
            if not variable.startswith(("PG", "ASYNCQ_", "DATABASE_URL"))
        }
        importable = [str(ROOT), *map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self.stdout_file.open("wb") as stdout, self.stderr_file.open("wb") as stderr:
            self._popen = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env={
                    **inherited,
                    "PYTHONPATH": os.pathsep.join(importable),
                    "PYTHONUNBUFFERED": "1",
                    **env,
                },
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # a Ctrl-C stops pytest, and pytest stops its processes
            )
        self.pid = self._popen.pid

    @property
    def stdout(self) -> str:
        """What it has written so far."""
        return self.stdout_file.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        """What it has logged so far."""
        return self.stderr_file.read_text(errors="replace")

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self._popen.poll()

    async def wait_for(self, text: str, within: float = 15.0) -> None:
        """Wait until it has logged a text."""

        def seen() -> bool:
            if text in self.stderr:
                return True
            # Read again: it may have written and ended since.
            if self.returncode is not None and text not in self.stderr:
                ended = f"{self.name} ended with {self.returncode} before it logged {text!r}"
                raise RuntimeError(f"{ended}; its stderr:\n{self.stderr[-4000:]}")
            return False

        try:
            await eventually(seen, within, describe=f"{self.name} (pid {self.pid}) logs {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}; its stderr:\n{self.stderr[-4000:]}") from None

    async def wait(self, within: float = 15.0) -> int:
        """Wait until it has ended and return the exit code, negative for a signal."""

        def ended() -> bool:
            return self.returncode is not None

        try:
            await eventually(ended, within, describe=f"{self.name} (pid {self.pid}) ends")
        except AssertionError as error:
            raise AssertionError(f"{error}; its stderr:\n{self.stderr[-4000:]}") from None
        assert self.returncode is not None
        return self.returncode

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; no harm if it has ended."""
        self._popen.send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM, as a deploy does: the graceful stop."""
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL: the crash."""
        self.send(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGSTOP: it freezes, with its connections and its leases."""
        self.send(signal.SIGSTOP)

    def cont(self) -> None:
        """Send SIGCONT: it goes on as if nothing had been."""
        self.send(signal.SIGCONT)

    def reap(self) -> None:
        """Kill it if it is still there, and collect its exit code."""
        self.kill()
        self._popen.wait(10)


class WorkerProcess(Process):
    """`python -m asyncq worker MODULE …` on a test's database."""

    def __init__(
        self,
        dsn: str,
        module: str,
        *arguments: str,
        logs: Path,
        env: Mapping[str, str] = MappingProxyType({}),
        paths: Sequence[Path] = (),
        name: str = "worker",
    ) -> None:
        super().__init__(
            ["-m", "asyncq", "worker", module, *arguments],
            logs=logs,
            env={"ASYNCQ_DSN": dsn, **env},
            paths=paths,
            name=name,
        )

    async def wait_ready(self, within: float = 15.0) -> None:
        """Wait until it serves its queues."""
        await self.wait_for(READY, within)
