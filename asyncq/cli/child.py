"""Worker processes of `asyncq demo` and `asyncq dev`: started, watched, stopped, and gone when their parent is.

A child runs in a session of its own, so that a Ctrl-C in the terminal reaches the parent alone, which then stops its
children in order. `asyncq.cli.leash`, which the child runs under, is what ends it when the parent is killed.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO

import anyio
from anyio.abc import Process

from asyncq.errors import ConfigurationError

__all__ = ["Child", "started"]

KILLED_SECONDS = 10.0
"""How long the system may take to end a process that was killed."""


class Child:
    """A running `asyncq …`, until `stop` has come back."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for its end and give the exit code."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Ask it to stop, as SIGTERM does; no harm if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End it as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self, patience: float) -> int:
        """Ask it to stop, wait for its end, and give the exit code. A cancelled caller waits too, up to the deadline.

        Args:
            patience: how long it may take, in seconds, before it is killed.
        """
        with anyio.CancelScope(shield=True):
            if self.returncode is None:
                self.terminate()
                with anyio.move_on_after(patience):
                    await self.wait()
            if self.returncode is None:
                self.kill()
            with anyio.fail_after(KILLED_SECONDS):
                await self.wait()
                await self._process.aclose()
        assert self.returncode is not None
        return self.returncode


@asynccontextmanager
async def started(
    arguments: Sequence[str],
    *,
    dsn: str,
    patience: float,
    log: Path | None = None,
    env: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[Child]:
    """Run `asyncq` with these arguments for a block, and stop it at the block's end.

    Args:
        arguments: what follows `asyncq`.
        dsn: given to it as ASYNCQ_DSN, because the arguments of a process can be read by everybody on the machine.
        patience: how long the stop may take, in seconds, before the process is killed.
        log: the file that its output is added to; None, it writes where this process does.
        env: added to its environment.

    Raises:
        ConfigurationError: the system starts no process.
    """
    command = [sys.executable, "-m", "asyncq.cli.leash", *arguments]
    with contextlib.ExitStack() as files:
        output: IO[bytes] | None = files.enter_context(log.open("ab")) if log else None
        try:
            process = await anyio.open_process(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **env, "ASYNCQ_DSN": dsn},
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigurationError(f"no worker process can be started: {error}") from None
    child = Child(process)
    try:
        yield child
    finally:
        await child.stop(patience)
