"""Tasks as values: their names, their options, and what `args` makes."""

import runpy
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from asyncq import BoundTask, InvalidArgsError, Queue, Retry, Snooze, TaskArgs, current_job
from asyncq.task import task_name

queue = Queue("emails")


@queue.task(name="send", priority=3, max_attempts=4)
async def send(user_id: int, text: str = "hello") -> str:
    return f"{user_id}: {text}"


@queue.task(name="other")
async def other(user_id: int) -> None: ...


async def test_calling_a_task_calls_the_function() -> None:
    assert await send(7) == "7: hello"
    assert await send(7, text="x") == "7: x"
    assert send.handler is not send


def test_args_are_validated_and_kept_as_text() -> None:
    assert send.args(7) == TaskArgs("send", '{"user_id":7}')
    assert send.args(user_id=7, text="ü") == TaskArgs("send", '{"user_id":7,"text":"ü"}')


@pytest.mark.parametrize("args", [(), ("7",), (7, 8), (7, "x", 9), (True,), (None,), (7.0,)], ids=repr)
def test_wrong_args_are_refused_with_the_tasks_name(args: Any) -> None:
    with pytest.raises(InvalidArgsError, match=r"^send: "):
        send.args(*args)


def test_options_change_what_they_say_and_leave_the_task_alone() -> None:
    before = send.stored
    at = datetime(2030, 1, 1, tzinfo=UTC)
    bound = send.options(run_at=at, priority=-1, queue="elsewhere", max_attempts=9)
    assert type(bound) is BoundTask
    assert (bound.stored.run_at, bound.stored.priority) == (at, -1)
    assert (bound.stored.queue, bound.stored.max_attempts) == ("elsewhere", 9)
    assert send.options().stored == send.stored == before
    assert send.options(delay=timedelta(minutes=1)).stored.delay_seconds == 60.0
    assert send.options(priority=0).stored.priority == 0


def test_zero_is_an_option_like_any_other() -> None:
    assert send.options(priority=0).stored.priority == 0
    assert send.options(delay=timedelta(0)).stored.delay_seconds == 0.0


def test_delay_and_run_at_exclude_each_other() -> None:
    with pytest.raises(InvalidArgsError, match=r"delay= or run_at="):
        send.options(delay=timedelta(0), run_at=datetime(2030, 1, 1, tzinfo=UTC))


def test_options_take_only_what_they_know() -> None:
    wrong: Any = send
    with pytest.raises(TypeError):
        wrong.options(timeout=timedelta(1))
    with pytest.raises(TypeError):
        wrong.options(timedelta(1))


def test_a_function_of_a_program_is_named_after_its_file(tmp_path: Path) -> None:
    program = tmp_path / "my_tasks.py"
    program.write_text(
        "from asyncq import Queue\nqueue = Queue()\n@queue.task\nasync def send() -> None: ...\nname = send.name\n"
    )
    # As `python my_tasks.py` does it.
    main = sys.modules["__main__"]
    try:
        names = runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.modules["__main__"] = main
    assert names["name"] == "my_tasks.send"


class Mailer:
    @staticmethod
    def send() -> None: ...


def test_a_method_is_named_with_its_class() -> None:
    assert task_name(Mailer.send) == "tests.unit.test_task.Mailer.send"


def test_no_job_runs_outside_of_a_worker() -> None:
    with pytest.raises(RuntimeError, match="current_job"):
        current_job()


@pytest.mark.parametrize(
    "wrong", [-1, -0.001, float("nan"), float("inf"), 1e300, timedelta(days=36_501), -timedelta(1)], ids=repr
)
def test_a_signals_delay_is_in_range(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"between 0 and 36,500 days"):
        Snooze(wrong)
    with pytest.raises(ValueError, match=r"between 0 and 36,500 days"):
        Retry(delay=wrong)


@pytest.mark.parametrize("wrong", ["10", True, [1], b"1"], ids=repr)
def test_a_signals_delay_is_a_timedelta_or_a_number(wrong: Any) -> None:
    with pytest.raises(TypeError, match="timedelta"):
        Snooze(wrong)
    with pytest.raises(TypeError, match="timedelta"):
        Retry(delay=wrong)
