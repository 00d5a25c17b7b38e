"""What `asyncq worker` writes to its log: readable lines, or JSON that a machine reads; always one line a record."""

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from asyncq import JobFilter
from asyncq.cli.log import FORMATS
from tests.conftest import StartWorker

TASKS = """
import asyncio, logging, threading
import anyio.to_thread
from asyncq import Queue, Snooze
queue = Queue("q", max_attempts=1)
log = logging.getLogger("shop")

@queue.task(name="t.async")
async def in_the_loop() -> None:
    log.info("in the loop", extra={"order": 17, "queue": "of people"})
    async def child() -> None:
        log.info("in a child")
    async with asyncio.TaskGroup() as group:
        group.create_task(child())
    await anyio.to_thread.run_sync(log.info, "in a thread of it")

@queue.task(name="t.thread")
def in_a_thread() -> None:
    log.info("in a\\x1b[31m thread\\nof %s", "many")

@queue.task(name="t.fails")
async def fails() -> None:
    raise ValueError("no such\\x07 user")
"""

Formatted = Callable[[dict[str, Any]], str]


@pytest.fixture(params=FORMATS)
def formatted(request: pytest.FixtureRequest) -> Formatted:
    formatter = FORMATS[request.param]()
    return lambda fields: formatter.format(logging.makeLogRecord(fields))


def read(line: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(line, parse_constant=refuse)


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


EVIL = "a\n\r\t\x00\x1b]0;t\x07\u2028\u202e\ud800 b"
CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


def test_whatever_is_logged_is_one_line_without_control_characters(formatted: Formatted) -> None:
    line = formatted({"msg": "%s", "args": (EVIL,), "levelname": "INFO", "name": EVIL, "job_id": 1, "task": EVIL})
    line.encode()
    assert line.isprintable()


@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        (17, 17),
        (EVIL, EVIL.replace("\ud800", "?")),
        ({"a": [1, None]}, {"a": [1, None]}),
        (Path("/x"), "/x"),
        (math.nan, "nan"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (CIRCLE, "[[...]]"),
        (Unprintable(), "<Unprintable>"),
        ([Unprintable()], None),
    ],
    ids=["number", "evil", "nested", "object", "NaN", "no JSON keys", "circle", "unprintable", "unprintable within"],
)
def test_json_carries_what_extra_gave(given: object, arrives: object) -> None:
    record = logging.makeLogRecord({"msg": "m", "order": given, "level": "mine", EVIL: 1})
    fields = read(FORMATS["json"]().format(record))
    assert arrives is None or fields["order"] == arrives
    assert (fields["message"], fields["level"], fields["level_"]) == ("m", "Level None", "mine")
    assert fields[EVIL.replace("\ud800", "?")] == 1


def test_a_traceback_has_no_control_characters_either(formatted: Formatted) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        shown = formatted({"msg": "m", "exc_info": (ValueError, error, error.__traceback__), "stack_info": EVIL})
    shown.encode()
    assert all(line.isprintable() for line in shown.split("\n"))
    assert "ValueError: a" in shown


def test_json_has_the_traceback() -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "m", "exc_info": (ValueError, error, error.__traceback__)})
    fields = read(FORMATS["json"]().format(record))
    assert fields["exception"].startswith("Traceback (most recent call last):\n")
    assert fields["exception"].endswith("ValueError: wrong")


def test_outside_of_a_job_records_are_left_alone() -> None:
    record = logging.makeLogRecord({"msg": "m"})
    before = dict(vars(record))
    assert JobFilter().filter(record)
    assert vars(record) == before


async def test_json_lines_name_the_job_that_they_are_about(
    conn: psycopg.AsyncConnection, tmp_path: Path, start_worker: StartWorker
) -> None:
    (tmp_path / "logging_tasks.py").write_text(TASKS)
    ids: dict[str, int] = {}
    for task in ("t.async", "t.thread", "t.fails"):
        cursor = await conn.execute("select asyncq.defer(%s, '{}', 'q', max_attempts => 1)", (task,))
        ids[task] = (await cursor.fetchall())[0][0]
    worker = start_worker("logging_tasks", "--burst", "--log-format", "json", "--verbose")
    assert await worker.wait() == 0
    lines = [read(line) for line in worker.stderr.splitlines()]
    said = {line["message"]: line for line in lines}
    for message, task in {
        "in the loop": "t.async",
        "in a child": "t.async",
        "in a thread of it": "t.async",
        "in a\x1b[31m thread\nof many": "t.thread",
    }.items():
        line = said[message]
        assert (line["logger"], line["level"]) == ("shop", "INFO")
        assert (line["job_id"], line["task"], line["attempt"]) == (ids[task], task, 1)
    assert (said["in the loop"]["order"], said["in the loop"]["queue"]) == (17, "of people")
    assert said["in a child"]["queue"] == "q"
    events = {(line["event"], line.get("job_id")): line for line in lines if "event" in line}
    failed = events["job.discarded", ids["t.fails"]]
    assert (failed["task"], failed["attempt"], failed["level"]) == ("t.fails", 1, "ERROR")
    assert failed["message"].endswith("ValueError: no such\x07 user")
    assert ("job.completed", ids["t.thread"]) in events
    started, stopped = events["worker.started", None], events["worker.stopped", None]
    assert started["worker"] == stopped["worker"]
    assert all(line["time"].endswith("+00:00") for line in lines)


async def test_readable_lines_of_a_handler_name_the_job_behind(
    conn: psycopg.AsyncConnection, tmp_path: Path, start_worker: StartWorker
) -> None:
    (tmp_path / "logging_tasks.py").write_text(TASKS)
    await conn.execute("select asyncq.defer('t.thread', '{}', 'q')")
    worker = start_worker("logging_tasks", "--burst", "--verbose")
    assert await worker.wait() == 0
    assert r"INFO shop: in a\x1b[31m thread\x0aof many [job 1 t.thread, attempt 1]" in worker.stderr
    assert "job 1 (t.thread, attempt 1 of 10) completed\n" in worker.stderr
