"""Windows' event loops, by stand-ins: psycopg cannot use the default one, and none of them has signals."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from asyncq import Queue, Worker
from asyncq.cli.worker import loop_factory
from asyncq.errors import ConfigurationError
from tests.cli.run import run
from tests.conftest import StartWorker


class Proactor(asyncio.SelectorEventLoop):
    """What psycopg refuses."""


def test_a_worker_says_which_event_loop_it_needs(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "ProactorEventLoop", Proactor, raising=False)
    with (
        asyncio.Runner(loop_factory=Proactor) as runner,
        pytest.raises(ConfigurationError, match=r"run the worker with asyncio\.SelectorEventLoop"),
    ):
        runner.run(Worker([Queue("emails")], dsn).run())


def test_the_worker_command_chooses_a_selector_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert loop_factory() is asyncio.SelectorEventLoop


def test_the_other_commands_do_not_run_in_the_default_event_loop(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def default() -> NoReturn:
        raise AssertionError("the default event loop")

    monkeypatch.setattr(asyncio, "new_event_loop", default)
    monkeypatch.setattr(asyncio.events, "new_event_loop", default)
    for arguments in (
        ["migrate", "--check"],
        ["migrate"],
        ["migrate", "--sql"],
        ["defer", "shop.pay", "--queue", "default"],
        ["discarded", "default"],
        ["replay", "default"],
    ):
        result = run(*arguments, dsn=dsn)
        assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signals_stop_a_worker_whose_event_loop_has_none(
    start_worker: StartWorker, tmp_path: Path, number: signal.Signals
) -> None:
    # Imported by the command before it makes its event loop.
    (tmp_path / "uvloop.py").write_text(
        "import asyncio\n"
        "def add_signal_handler(*_): raise NotImplementedError\n"
        "asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler\n"
        "del asyncio.new_event_loop\n"  # nor does the watchdog's thread use the default one
        "raise ImportError\n"
    )
    worker = start_worker("tests.worker.app")
    await worker.wait_ready()
    worker.send(number)
    assert await worker.wait() == 0
    assert "worker stopped" in worker.stderr
