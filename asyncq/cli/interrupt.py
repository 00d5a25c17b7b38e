"""How a command is ended: by Ctrl-C, SIGTERM or a terminal that is closed, while it tidies up; and by an error."""

import asyncio
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

from asyncq.errors import ConfigurationError

__all__ = ["Interrupted", "cancelled_by_signals", "one_error", "signals_to"]


def _signals() -> list[signal.Signals]:
    wanted = [signal.SIGINT, signal.SIGTERM]
    # Ignored under nohup, which is to stay so.
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    return wanted


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
    numbers = _signals()
    for number in numbers:
        loop.add_signal_handler(number, call, number)
    try:
        yield
    finally:
        for number in numbers:
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


@contextmanager
def one_error() -> Generator[None]:
    """Raise one error alone out of those that ended a task group, so that it can be told in one line."""
    try:
        yield
    except ExceptionGroup as group:
        raise _first(group) from None


def _first(error: Exception) -> Exception:
    if isinstance(error, ExceptionGroup):
        inner: tuple[Exception, ...] = error.exceptions
        return _first(inner[0])
    return error
