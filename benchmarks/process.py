"""A process of a system, seen from the driver: requests go in, answers come out, each a line of JSON."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks.account import memory_mib, processor_seconds

ROOT = Path(__file__).parents[1]


class SystemFailedError(Exception):
    """A system did not do what it was asked for; the message has the end of what it wrote."""


class SystemProcess:
    """Started with the Python of the system's environment; `close` ends it and whatever it started."""

    def __init__(
        self, python: Path, module: str, *, dsn: str, counters: Path, slot: int, settings: dict[str, Any]
    ) -> None:
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed with the process
        arguments = ["--dsn", dsn, "--counters", str(counters), "--slot", str(slot)]
        self._popen = subprocess.Popen(
            [python, "-m", module, *arguments, "--settings", json.dumps(settings)],
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self.name = module.rsplit(".", 1)[1]
        self.pid = self._popen.pid
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, do: str, **arguments: Any) -> None:
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._popen.stdin.flush()
        except OSError:
            raise SystemFailedError(f"{self.name} has ended: {self.said()}") from None

    def answer(self, timeout: float = 60.0) -> dict[str, Any]:
        """Give the answer to the oldest request that was not answered yet."""
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise SystemFailedError(f"{self.name} did not answer within {timeout:.0f} s: {self.said()}") from None
        if not line:
            raise SystemFailedError(f"{self.name} ended with {self._popen.wait(10)}: {self.said()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SystemFailedError(f"{self.name}: {answer['error'].strip()[-2000:]}")
        return answer

    def ask(self, do: str, *, timeout: float = 60.0, **arguments: Any) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.answer(timeout)

    def check(self) -> None:
        """Raise if the process has ended, which it does when its worker fails."""
        if self._popen.poll() is not None:
            raise SystemFailedError(f"{self.name} ended with {self._popen.returncode}: {self.said()}")

    def processor_seconds(self) -> float:
        return processor_seconds(self.pid)

    def memory_mib(self, *, peak: bool = False) -> float:
        return memory_mib(self.pid, peak=peak)

    def said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()[-2000:]

    def close(self) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._popen.stdin.close()
            self._popen.wait(1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(10)
        self._log.close()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._answers.put(line)
        self._answers.put("")


def warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
