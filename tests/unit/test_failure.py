"""What is kept of an exception: bounded text that PostgreSQL can hold, whatever the exception does to prevent it."""

import gc
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncq.failure import LONGEST, clean, describe, type_name


def raised(make: Callable[[], BaseException]) -> BaseException:
    """Give an exception that was really raised, with a traceback."""
    try:
        raise make()
    except BaseException as error:  # noqa: BLE001 - any
        return error


def storable(text: str) -> bool:
    text.encode()
    return "\x00" not in text and 0 < len(text) <= LONGEST


class Evil(str):
    __slots__ = ()

    def __len__(self) -> int:
        raise ZeroDivisionError

    def __str__(self) -> str:
        return self

    replace = encode = splitlines = __getitem__ = __format__ = __add__ = __len__  # type: ignore[assignment]


class StrRaisesError(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


class StrExitsError(Exception):
    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class StrIsNoneError(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # noqa: PLE0307 - that is the point


class StrIsEvilError(Exception):
    def __str__(self) -> str:
        return Evil("evil text")


class TracebackRaisesError(Exception):
    @property
    def __traceback__(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise ZeroDivisionError


class CauseRaisesError(Exception):
    @property
    def __cause__(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise ZeroDivisionError


class CauseExitsError(Exception):
    @property
    def __cause__(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise SystemExit


class CauseIsNoneError(Exception):
    @property
    def __cause__(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "a string"


class NotesRaiseError(Exception):
    @property
    def __notes__(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise SystemExit


def of_a_nameless_type() -> BaseException:
    class Nameless(type):
        @property
        def __name__(cls) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
            raise ZeroDivisionError

    class NameRaisesError(Exception, metaclass=Nameless):
        __module__ = "builtins"  # of these only the name is shown

    return NameRaisesError()


def with_notes(*notes: object) -> BaseException:
    error = ValueError("noted")
    error.__notes__ = notes  # type: ignore[assignment]
    return error


def a_circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def its_own_cause() -> BaseException:
    error = ValueError("own")
    error.__cause__ = error
    return error


def a_chain(length: int, attribute: str) -> BaseException:
    error = ValueError("the root")
    for number in range(length):
        outer = ValueError(f"link {number}")
        setattr(outer, attribute, error)
        error = outer
    return error


def nested(depth: int) -> BaseException:
    error: Any = ValueError("innermost")
    for _ in range(depth):
        error = ExceptionGroup("group", [error, KeyError("beside")])
    return error


def recursion() -> BaseException:
    def deeper() -> None:
        deeper()

    try:
        deeper()
    except RecursionError as error:
        return error
    raise AssertionError


FIGHTERS: dict[str, Callable[[], BaseException]] = {
    "its text raises": StrRaisesError,
    "its text exits": StrExitsError,
    "its text is no text": StrIsNoneError,
    "its text is a subclass of str": StrIsEvilError,
    "its argument is a subclass of str": lambda: ValueError(Evil("x")),
    "its argument's text raises": lambda: ValueError(StrRaisesError()),
    "its traceback raises": TracebackRaisesError,
    "its cause raises": CauseRaisesError,
    "its cause exits": CauseExitsError,
    "its cause is no exception": CauseIsNoneError,
    "its notes raise": NotesRaiseError,
    "its type's name raises": of_a_nameless_type,
    "notes that are none": lambda: with_notes(None, 5, StrRaisesError()),
    "notes of 5 MB": lambda: with_notes(*["x" * 500_000] * 10),
    "a hundred thousand notes": lambda: with_notes(*["note"] * 100_000),
    "a circle of causes": a_circle,
    "its own cause": its_own_cause,
    "a chain of 10,000 causes": lambda: a_chain(10_000, "__cause__"),
    "a chain of 10,000 contexts": lambda: a_chain(10_000, "__context__"),
    "a message of 5 MB": lambda: ValueError("x" * 5_000_000),
    "a message of 5 MB of NUL": lambda: ValueError("\x00" * 5_000_000),
    "a message of 1 MB of half pairs": lambda: ValueError("\ud800" * 1_000_000),
    "a message of a million lines": lambda: ValueError("\n" * 1_000_000),
    "no message": ValueError,
    "an empty message": lambda: ValueError(""),
    "NUL": lambda: ValueError("a\x00b"),
    "a lone surrogate": lambda: ValueError("a\udfffb"),
    "a group of a thousand": lambda: ExceptionGroup("many", [ValueError("x" * 100_000)] * 1_000),
    "groups within groups": lambda: nested(5_000),
    "a group of fighters": lambda: BaseExceptionGroup(
        "g", [StrRaisesError(), StrIsNoneError(), NotesRaiseError(), a_circle()]
    ),
    "endless recursion": recursion,
    "an exit": lambda: SystemExit(3),
    "an interrupt": KeyboardInterrupt,
}


@pytest.mark.parametrize("make", FIGHTERS.values(), ids=FIGHTERS)
@pytest.mark.parametrize("with_traceback", [False, True])
def test_always_gives_bounded_text_that_can_be_stored(
    make: Callable[[], BaseException],
    with_traceback: bool,  # noqa: FBT001
) -> None:
    error = raised(make) if with_traceback else make()
    began = time.perf_counter()
    text = describe(error)
    assert time.perf_counter() - began < 2.0
    assert type(text) is str
    assert storable(text), len(text)
    assert type_name(error) in text


def test_shows_where_it_was_raised_and_the_message_last() -> None:
    text = describe(raised(lambda: ValueError("no such user")))
    assert text.startswith("Traceback (most recent call last):\n")
    assert "test_failure.py" in text
    assert "raise make()" in text
    assert text.splitlines()[-1] == "ValueError: no such user"


def test_shows_causes_first_as_python_does() -> None:
    cause, context = ValueError("cause"), KeyError("context")
    error = RuntimeError("effect")
    error.__cause__ = cause
    text = describe(error)
    assert text.index("ValueError: cause") < text.index("direct cause") < text.index("RuntimeError: effect")
    error.__cause__, error.__context__ = None, context
    error.__suppress_context__ = False
    assert "KeyError: 'context'" in describe(error)
    error.__suppress_context__ = True
    assert describe(error) == "RuntimeError: effect"


def test_a_long_chain_keeps_the_latest_failures() -> None:
    text = describe(a_chain(10_000, "__cause__"))
    assert "ValueError: link 9999" in text
    assert "link 9998" in text
    assert "the root" not in text


def test_names_the_class_with_its_module_unless_it_is_pythons_own() -> None:
    assert describe(StrRaisesError()).startswith(f"{__name__}.StrRaisesError: ")
    assert describe(KeyError("x")) == "KeyError: 'x'"


def test_an_unprintable_message_says_so() -> None:
    assert describe(StrRaisesError()).endswith("StrRaisesError: <no text: its __str__ raised ZeroDivisionError>")


def test_shows_notes_and_the_members_of_a_group() -> None:
    noted = ValueError("inner")
    noted.add_note("tried twice")
    text = describe(ExceptionGroup("outer", [noted, ExceptionGroup("second", [KeyError("x")])]))
    for expected in ("ExceptionGroup: outer (2 sub-exceptions)", "ValueError: inner", "tried twice", "second"):
        assert expected in text


def test_keeps_head_and_tail_of_a_long_message() -> None:
    text = describe(ValueError("BEGIN" + "x" * 5_000_000 + "END"))
    assert "BEGIN" in text
    assert text.endswith("END")
    assert "characters cut" in text


def test_keeps_the_innermost_frames() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise_here()
        deep(n - 1)

    def raise_here() -> None:
        raise ValueError("deep")

    with pytest.raises(ValueError, match="deep") as raised_here:
        deep(200)
    text = describe(raised_here.value)
    assert "raise_here" in text
    assert len(text) < 8_000


def test_keeps_no_reference_to_the_exception_or_its_frames() -> None:
    class Large:
        pass

    def fails() -> None:
        large = Large()
        kept.append(weakref.ref(large))
        raise ValueError(large)

    kept: list[weakref.ref[Large]] = []
    try:
        fails()
    except ValueError as error:
        describe(error)
    gc.collect()
    assert kept[0]() is None
    assert sys.exc_info() == (None, None, None)


def test_lines_that_show_values_hold_no_locals() -> None:
    def fails() -> None:
        password = "hunter" + "2"
        raise ValueError(len(password))

    with pytest.raises(ValueError, match="7") as raised_here:
        fails()
    assert "hunter2" not in describe(raised_here.value)


# --- clean ------------------------------------------------------------------------------------------------------------


@given(st.text(), st.integers(min_value=40, max_value=200))
def test_clean_text_is_storable_and_bounded(text: str, longest: int) -> None:
    cleaned = clean(text, longest)
    cleaned.encode()
    assert "\x00" not in cleaned
    assert len(cleaned) <= longest


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=100))
def test_clean_leaves_good_text_as_it_is(text: str) -> None:
    assert clean(text, 100) == text


@pytest.mark.parametrize("character", ["\x00", "\udfff"])
def test_clean_is_bounded_also_where_it_has_to_write_more(character: str) -> None:
    assert len(clean(character * LONGEST)) <= LONGEST
    assert len(clean(character * 5_000_000)) <= LONGEST


def test_clean_is_fast_on_what_is_large() -> None:
    text = "x" * 50_000_000
    began = time.perf_counter()
    clean(text)
    assert time.perf_counter() - began < 0.5
