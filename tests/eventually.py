"""Wait for something to become true, with a name for it: the tests' only way to wait for time to pass."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

__all__ = ["eventually"]

T = TypeVar("T")

INTERVAL = 0.015


async def eventually(
    condition: Callable[[], Awaitable[T]] | Callable[[], T], within: float = 5.0, *, describe: str = ""
) -> T:
    """Call a condition until what it returns is true, and return that.

    An `AssertionError` counts as "not yet", so that a condition may be written as assertions that end with
    `return True`. Every other exception passes through.

    Raises:
        AssertionError: it did not become true in time. The message has the description and the last value.
    """
    what = describe or getattr(condition, "__qualname__", repr(condition))
    last: object = "nothing: the condition never returned"
    started = time.monotonic()
    with anyio.move_on_after(within):
        while True:
            try:
                value = condition()
                result: T = await value if inspect.isawaitable(value) else value  # pyright: ignore[reportAssignmentType] - Awaitable[Awaitable] is not meant
                if result:
                    return result
                last = result
            except AssertionError as error:
                last = error
            await anyio.sleep(INTERVAL)
    raise AssertionError(f"not within {time.monotonic() - started:.1f} s: {what}; last seen: {last!r}")
