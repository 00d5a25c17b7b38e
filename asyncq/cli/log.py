"""Text for a terminal and a log: one line a record, no control characters from anybody's data."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

from asyncq.failure import type_name
from asyncq.running import JobFilter

__all__ = ["FORMATS", "printable", "set_up"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; all else was given by `extra`, or by a filter."""


def printable(text: str) -> str:
    r"""Show control characters instead of sending them to the terminal.

    >>> printable("a\x1b]0;title\x07\nb")
    'a\\x1b]0;title\\x07\\x0ab'
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text).encode("utf-8", "backslashreplace").decode()


class _OneLine(logging.Formatter):
    """Readable lines, and a traceback's below its own; what a handler logs names its job behind."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        line = super().formatMessage(record)
        given = vars(record)
        # The worker's own lines name it already.
        if "job_id" in given and not record.name.startswith("asyncq."):
            line += f" [job {given['job_id']} {given.get('task')}, attempt {given.get('attempt')}]"
        return printable(line)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return _printable_lines(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        return _printable_lines(super().formatStack(stack_info))


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


class _Json(logging.Formatter):
    """One JSON object a line, with whatever `extra` gave."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        given = {name: value for name, value in vars(record).items() if name not in _PLAIN}
        content |= {f"{name}_" if name in content else name: value for name, value in given.items()}
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            content["stack"] = record.stack_info
        return _one_line(content)


def _one_line(content: dict[str, object]) -> str:
    text = "{" + ", ".join(f"{_dumped(name)}: {_dumped(value)}" for name, value in content.items()) + "}"
    # Only inside of strings is there anything left to be escaped.
    text = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode("utf-8", "replace").decode()


def _dumped(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except Exception:  # noqa: BLE001 - users' data may be made of anything
        return _dumped(_shown(value))


def _shown(value: object) -> str:
    try:
        return f"{value}"
    except Exception:  # noqa: BLE001 - as above
        return f"<{type_name(value)}>"


FORMATS = {"console": _OneLine, "json": _Json}


def set_up(level: int, form: str = "console") -> None:
    """Log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[form]())
    handler.addFilter(JobFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    if level > logging.DEBUG:
        # Of connections that were given up in mid-statement: why is told by whoever gave them up.
        logging.getLogger("psycopg").addFilter(lambda record: record.levelno >= logging.ERROR)
