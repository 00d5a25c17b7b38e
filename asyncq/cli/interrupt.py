"""Signals that tell a command to end, for as long as it tidies up: Ctrl-C, SIGTERM, and a terminal that is closed."""

import asyncio
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

from asyncq.errors import ConfigurationError

__all__ = ["Interrupted", "cancelled_by_signals", "signals_to"]

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted:
    """Whether a block was interrupted, and by what."""

    def __init__(self) -> None:
        self.number: signal.Signals | None = None

    @property
    def exit_code(self) -> int:
        """As a shell reports a program that ended by the signal."""
        return 0 if self.number is None else 128 + self.number


@contextmanager
def signals_to(call: Callable[[signal.Signals], None]) -> Generator[None]:
    """Call a function in the event loop at each signal, until the block ends.

    Raises:
        ConfigurationError: on Windows, whose event loops have no signals.
    """
    if sys.platform == "win32":
        raise ConfigurationError("this command needs a POSIX system; 'asyncq migrate' and 'asyncq worker' do not")
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, call, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def cancelled_by_signals() -> Generator[Interrupted]:
    """Cancel the block at the first signal, and go on behind it. Later signals do not disturb its tidying up."""
    interrupted = Interrupted()
    scope = anyio.CancelScope()

    def cancel(number: signal.Signals) -> None:
        interrupted.number = interrupted.number or number
        scope.cancel()

    with signals_to(cancel), scope:
        yield interrupted
