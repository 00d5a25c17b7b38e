"""What is kept of an exception: its traceback as text that fits a row, whatever the exception does to prevent it.

An exception is users' data: its `__str__` may raise, its causes may form a circle or a chain of thousands, its
message may have 200 MB or characters that PostgreSQL cannot hold. `describe` never raises and never gives more than
`LONGEST` characters; it keeps no reference to the exception or its frames.
"""

import traceback
from collections.abc import Iterator
from typing import Any

__all__ = ["LONGEST", "clean", "describe", "type_name"]

LONGEST = 16_384
"""Characters kept of a failure: the first half and the last half of a longer text."""

_LINKS = 8
_LEAVES = 8
_FRAMES = 30


def clean(text: str, longest: int = LONGEST) -> str:
    r"""Cut a text to size, keeping head and tail, and replace what PostgreSQL's text cannot hold.

    >>> clean("nul \x00 and half a pair \ud800")
    'nul \\x00 and half a pair \\ud800'
    >>> clean("abcdefghij" * 10, longest=40)
    'abcdef\n... 88 characters cut ...\nefghij'
    """
    # Cut before, for what comes may be huge, and after, for what is replaced gets longer.
    text = _cut(text, longest)
    return _cut(text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8"), longest)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = (longest - len(f"\n... {len(text)} characters cut ...\n")) // 2
    if half <= 0:
        return text[:longest]
    return f"{text[:half]}\n... {len(text) - 2 * half} characters cut ...\n{text[-half:]}"


def describe(error: BaseException) -> str:
    """Give the traceback of an exception as text for a row's `last_error`; it never raises.

    >>> describe(ValueError("no such user"))
    'ValueError: no such user'
    """
    try:
        return clean("\n".join(_chain(error)))
    except BaseException:  # noqa: BLE001 - the outcome must be written, whatever the exception is made of
        return f"{type_name(error)}: <a traceback that cannot be printed>"


def type_name(value: object) -> str:
    """Name the type of anything, whatever its metaclass says; it never raises.

    >>> type_name(ValueError("no such user"))
    'ValueError'
    """
    return _NAME.__get__(type(value))


_NAME = vars(type)["__name__"]
"""The name as Python keeps it: asked for `__name__`, a class may answer anything."""


def _chain(error: BaseException) -> Iterator[str]:
    links: list[tuple[str, BaseException]] = []
    seen: set[int] = set()
    current: BaseException | None = error
    introduced = ""
    while current is not None and id(current) not in seen and len(links) < _LINKS:
        seen.add(id(current))
        links.append((introduced, current))
        if current.__cause__ is not None:
            current, introduced = current.__cause__, "The above was the direct cause of the following:"
        elif current.__context__ is not None and not current.__suppress_context__:
            current, introduced = current.__context__, "While the above was handled, the following was raised:"
        else:
            current = None
    for position in range(len(links) - 1, -1, -1):
        yield from _one(links[position][1])
        if position:
            yield f"\n{links[position][0]}\n"


def _one(error: BaseException) -> Iterator[str]:
    if error.__traceback__ is not None:
        # A negative limit keeps the innermost frames; source lines are read from files already in the line cache.
        frames = traceback.extract_tb(error.__traceback__, limit=-_FRAMES)
        yield "Traceback (most recent call last):"
        yield "".join(frames.format()).rstrip("\n")
    yield f"{_name(error)}{_message(error)}"
    for note in _notes(error):
        yield clean(note, 1000)
    if isinstance(error, BaseExceptionGroup):
        leaves: tuple[BaseException, ...] = error.exceptions
        for number, leaf in enumerate(leaves[:_LEAVES], start=1):
            yield f"  -- {number} of {len(leaves)} in the group:"
            if isinstance(leaf, BaseExceptionGroup):
                yield f"  {_name(leaf)}{_message(leaf)}"
            else:
                yield from ("  " + line for part in _one(leaf) for line in part.splitlines())


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        text = str(error)
        # A copy as plain str: a subclass may have answers of its own to everything that follows.
        text = clean(str.__str__(text), LONGEST // 2)
    except BaseException as problem:  # noqa: BLE001 - its __str__ may raise anything
        return f": <no text: its __str__ raised {type_name(problem)}>"
    return f": {text}" if text else ""


def _notes(error: BaseException) -> list[str]:
    try:
        # Whatever the user's code put there, in a list of anything.
        notes: Any = getattr(error, "__notes__", [])
        return [str(note) for note in notes[:10]] if isinstance(notes, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    except BaseException:  # noqa: BLE001 - as above
        return ["<notes that cannot be printed>"]
