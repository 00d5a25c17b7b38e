"""Text for a terminal and a log: one line a record, no control characters from anybody's data."""

import logging
import re
import sys

__all__ = ["printable", "set_up"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Show control characters instead of sending them to the terminal.

    >>> printable("a\x1b]0;title\x07\nb")
    'a\\x1b]0;title\\x07\\x0ab'
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text).encode("utf-8", "backslashreplace").decode()


class _OneLine(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = printable(record.message)
        return super().formatMessage(record)


def set_up(level: int) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
