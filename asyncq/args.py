"""Arguments of a job: a handler's signature becomes a pydantic schema, which writes and reads `jobs.args`.

In comes the handler at registration, and the caller's arguments at each defer; out goes a JSON object, keyed by
parameter name. At the worker that text comes back in, and what goes out calls the handler.

The invariant: **arguments arrive equal and of the same type, or they are refused** - at registration if no value of
the annotated type could arrive, otherwise at defer, before any SQL. There is no list of good types: `dump` reads its
own text back as the worker will, and compares each part with what the caller gave. (Except where an annotation is one
of four types of which all values arrive, and the value is of this very type: see `_WRITERS`.) Equal means, precisely:

* An `int` for a `float` is accepted where no digit is lost. Everything else must keep its exact type: a `bool` or an
  `IntEnum` member for an `int`, a `tuple` for a `Sequence` and a subclass for its base are refused.
* An aware `datetime` is the same instant, and comes back with a fixed offset in place of a named zone.
* A dict is equal in any order, since jsonb keeps none; an `OrderedDict` is therefore refused.
* Models and dataclasses are compared field by field; which fields of a model were set explicitly is not kept.

Only what the caller passed is stored. What was left out takes the handler's default when the job runs, so that a
changed default applies to jobs already waiting.

Models are written by field name, never by alias, for only names are the same in both directions; both are read.
"""

import dataclasses
import functools
import inspect
import json
import math
import re
import sys
import types
import typing
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, cast

from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    PlainSerializer,
    Secret,
    SecretBytes,
    SecretStr,
    TypeAdapter,
    ValidationError,
    WrapSerializer,
)
from pydantic_core import PydanticSerializationError, core_schema

from asyncq.arrival import Place, Problem, changed_values
from asyncq.errors import ConfigurationError, InvalidArgsError

__all__ = ["MAX_ARGS_BYTES", "Arguments", "UndecodableArgsError"]

MAX_ARGS_BYTES = 16 * 1024 * 1024
"""The longest JSON text that `dump` returns, in bytes of UTF-8."""


class UndecodableArgsError(InvalidArgsError):
    """The stored text is no JSON object, or nested too deeply: no version of the handler can ever run it."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """Write and read the arguments of one task.

    What `load` returns is equal to what `dump` was given, part by part and type by type.

    >>> def remind(user_id: int, /, text: str = "hello", *, urgent: bool = False) -> None: ...
    >>> arguments = Arguments.of(remind, task="app.remind")
    >>> arguments.dump((7,), {"urgent": True})
    '{"user_id":7,"urgent":true}'
    >>> arguments.load('{"user_id": 7, "urgent": true}')
    ((7,), {'urgent': True})
    >>> arguments.dump(("7",), {})
    Traceback (most recent call last):
    asyncq.errors.InvalidArgsError: app.remind: user_id: str would arrive as int; annotate or pass the exact type
    """

    task: str
    _signature: inspect.Signature
    _adapter: TypeAdapter[dict[str, object]]
    _positional: tuple[str, ...]  # what can be passed by position, in order
    _keywords: frozenset[str]  # what can be passed by keyword
    _required: frozenset[str]
    _positional_only: Mapping[str, object]  # their defaults, in order; for a required one it is never looked at
    _enough: int  # so many passed by position are all that are required
    _plain: Mapping[str, tuple[str, "_Writers"]]  # each one's key in JSON, and what writes its values without a doubt

    @classmethod
    def of(cls, handler: Callable[..., object], *, task: str) -> "Arguments":
        """Read the signature of `handler` once, and refuse what can never work.

        String annotations are resolved among the handler's globals and closure; local names of an enclosing
        function that the handler's body does not use cannot be seen.

        Raises:
            ConfigurationError: for `*args` or `**kwargs`, a missing or unresolvable annotation, a type that JSON cannot
                carry, or a default that does not fit its annotation. Names the task and the parameter.
        """
        try:
            signature = inspect.signature(handler)
        except (NameError, TypeError, ValueError) as error:
            raise ConfigurationError(f"task {task}: the handler's signature cannot be read: {error}") from error
        hints = {
            parameter.name: _hint(handler, parameter, f"task {task}, parameter {parameter.name!r}")
            for parameter in signature.parameters.values()
        }
        parameters = signature.parameters.values()
        required = [p for p in parameters if p.default is p.empty]
        by_keyword = any(p.kind is p.KEYWORD_ONLY for p in required)
        return cls(
            task=task,
            _signature=signature,
            _adapter=_adapter(hints, optional={p.name for p in parameters if p.default is not p.empty}),
            _positional=tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY),
            _keywords=frozenset(p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY),
            _required=frozenset(p.name for p in required),
            _positional_only={p.name: p.default for p in parameters if p.kind is p.POSITIONAL_ONLY},
            _enough=sys.maxsize if by_keyword else len(required),
            _plain={name: (f"{_written_text(name)}:", _plain_writers(hint)) for name, hint in hints.items()},
        )

    def dump(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return the arguments as the text of a JSON object which jsonb accepts and `load` turns back into them.

        Raises:
            InvalidArgsError: they do not fit the signature, would arrive changed, or cannot be held by jsonb: NUL
                characters, lone surrogates, NaN and infinity, more than `MAX_ARGS_BYTES`, about 200 levels. The message
                names the place and never shows a value. Nothing else is ever raised.
        """
        if not kwargs and self._enough <= len(args) <= len(self._positional):
            given = zip(self._positional, args)  # noqa: B905 - strict=False would take three times as long
            return self._write_plain(given) or self._write_proven(self._bind(args, kwargs))
        bound = self._bind(args, kwargs)
        return self._write_plain(bound.items()) or self._write_proven(bound)

    def load(self, text: str | bytes) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the positional and the keyword arguments to call the handler with.

        Rows may also come from SQL and from other versions of the handler, so values are checked like any input:
        what pydantic can convert is converted, unknown and missing ones are refused.

        Raises:
            UndecodableArgsError: `text` is no JSON object at all.
            InvalidArgsError: it does not fit the handler. The message names the places and never shows a value. Nothing
                else is ever raised.
        """
        try:
            values = self._read(text)
        except ValidationError as error:
            # The object itself has no validators, so an error outside any field is about the text as a whole.
            whole = any(not details["loc"] for details in error.errors(include_url=False, include_input=False))
            raise (UndecodableArgsError if whole else InvalidArgsError)(f"{self.task}: {_explain(error)}") from error
        except Exception as error:
            raise InvalidArgsError(f"{self.task}: {_explain(error)}") from error
        if not self._positional_only:
            return (), values
        # One left out between others cannot be skipped in a call, so its default stands in its place.
        return tuple(values.pop(name, default) for name, default in self._positional_only.items()), values

    def _bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Do what `Signature.bind` does, in a fraction of its time; the odd case is left to it, for its message."""
        given = dict(zip(self._positional, args))  # noqa: B905 - strict=False would take three times as long
        given.update(kwargs)
        if (
            len(given) == len(args) + len(kwargs)  # none too many, none twice
            and self._keywords.issuperset(kwargs)
            and self._required.issubset(given)
        ):
            return given
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise InvalidArgsError(f"{self.task}: {_short(str(error))}") from None

    def _write_plain(self, given: Iterable[tuple[str, object]]) -> str | None:
        """Write what cannot arrive changed, in a third of the time; None if there is a doubt, or something is wrong.

        The text is the same as `_write` gives.
        """
        plain = self._plain
        members: list[str] = []
        try:
            for name, value in given:
                key, writers = plain[name]
                write = writers.get(type(value))
                if write is None:
                    return None
                members.append(key + write(value))
        except ValueError:  # too many digits for Python to write
            return None
        text = "{" + ",".join(members) + "}"
        # All numbers in a text this short have few enough digits. Text in it may be written with NUL as an escape.
        if len(text) > _PLAIN_CHARACTERS or "\\u0000" in text:
            return None
        return text if text.isascii() or not _SURROGATE.search(text) else None

    def _write_proven(self, given: dict[str, object]) -> str:
        """Write the arguments, and read them back for proof."""
        try:
            # Wrong types are not looked for here: whatever they are written as is found out by reading it back.
            written = self._write(given)
        except Exception as error:
            raise InvalidArgsError(f"{self.task}: {self._why_unwritable(given, error)}") from error
        if len(written) > MAX_ARGS_BYTES:
            raise InvalidArgsError(self._too_long(len(written)))
        text = written.decode()
        if _EXPONENT.search(text):
            text = _EXPONENT_OR_STRING.sub(_without_exponent, text)
            if len(text) > MAX_ARGS_BYTES:
                raise InvalidArgsError(self._too_long(len(text)))
        problem = None
        try:
            if "\\u0000" in text or "NaN" in text or "Infinity" in text:
                problem = _unstorable(json.loads(text))
            if problem is None:
                problem = changed_values(given, self._read(text))
        except Exception as error:
            raise InvalidArgsError(f"{self.task}: {_explain(error)}") from error
        if problem is not None:
            place, why = problem
            raise InvalidArgsError(f"{self.task}: {_dotted(place)}: {why}")
        return text

    def _write(self, given: dict[str, object]) -> bytes:
        return self._adapter.serializer.to_json(given, by_alias=False, round_trip=True, warnings=False)

    def _read(self, text: str | bytes) -> dict[str, object]:
        return cast("dict[str, object]", self._adapter.validator.validate_json(text, by_alias=True, by_name=True))

    def _too_long(self, length: int) -> str:
        return (
            f"{self.task}: the arguments take {length:,} bytes as JSON, more than {MAX_ARGS_BYTES:,}; "
            "store the data elsewhere and pass its key"
        )

    def _why_unwritable(self, given: dict[str, object], error: Exception) -> str:
        for name, value in given.items():
            try:
                self._write({name: value})
            except Exception as own_error:  # noqa: BLE001 - a serializer of the user's own may raise anything
                return f"{name}: {_explain_unwritable(own_error)}"
        return _explain_unwritable(error)


# --- From a signature to a schema -------------------------------------------------------------------------------------


def _hint(handler: Callable[..., object], parameter: inspect.Parameter, where: str) -> object:
    """Return the resolved annotation of a parameter that can be stored; raise ConfigurationError otherwise."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ConfigurationError(f"{where}: *args and **kwargs cannot be stored; name each parameter")
    if parameter.annotation is parameter.empty and parameter.name in ("self", "cls"):
        raise ConfigurationError(f"{where}: a method cannot be a task, for {parameter.name} would have to be stored")
    if parameter.annotation is parameter.empty:
        raise ConfigurationError(f"{where} has no annotation; add one (`Any` will do)")
    try:
        # One by one, so that the error names the parameter, and the return annotation need not be importable at all.
        holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
        hint: object = typing.get_type_hints(holder, *_namespaces(handler), include_extras=True)[parameter.name]
    except Exception as error:
        raise ConfigurationError(
            f"{where}: the annotation {_short(str(parameter.annotation))!r} cannot be resolved ({_short(str(error))}); "
            "use names of the handler's module that are imported at run time, not under TYPE_CHECKING"
        ) from error
    for part in _parts(hint):
        for unfit, why in _UNFIT_TYPES.items():
            if isinstance(part, type) and issubclass(part, unfit):
                raise ConfigurationError(f"{where}: {part.__name__} cannot be stored: {why}")
    _check_schema(parameter, hint, where)
    return hint


def _check_schema(parameter: inspect.Parameter, hint: object, where: str) -> None:
    try:
        adapter = _adapter({parameter.name: hint}, optional=())
        schema = adapter.core_schema if adapter.pydantic_complete else None
    except Exception as error:
        first_line = _short(str(error).partition("\n")[0])
        raise ConfigurationError(f"{where}: pydantic has no schema for its type: {first_line}") from error
    if schema is None:
        raise ConfigurationError(f"{where}: its type refers to a name that is not defined; define it before the task")
    for kind in _kinds(schema):
        if kind in _UNFIT_KINDS:
            raise ConfigurationError(f"{where}: {_UNFIT_KINDS[kind]} cannot be stored; pass plain data instead")
    if parameter.default is not parameter.empty:
        default = {parameter.name: parameter.default}
        try:
            adapter.validator.validate_python(default, strict=True, by_alias=True, by_name=True)
        except Exception as error:
            raise ConfigurationError(f"{where}: its default does not fit the annotation: {_explain(error)}") from error


def _namespaces(handler: Callable[..., object]) -> tuple[dict[str, object], dict[str, object]]:
    """Return the globals and the closure in which string annotations of the handler were written."""
    function: Any = handler
    while (inner := getattr(function, "__wrapped__", None)) or isinstance(function, functools.partial):
        function = inner or function.func
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__globals__"):
        function = getattr(type(function).__call__, "__func__", type(function).__call__)
    closure: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # assigned later, or never
            continue
    return function.__globals__, closure


def _adapter(hints: Mapping[str, object], *, optional: Iterable[str]) -> TypeAdapter[dict[str, object]]:
    """Return the adapter of a dict with these keys.

    A dict rather than a model: its keys may have any name (`json`, `copy`, `model_config`), nothing is filled in for
    what was left out, and the values that are read are the arguments of the call already.
    """

    def schema(_source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(hint), required=name not in optional)
            for name, hint in hints.items()
        }
        # The adapter's config reaches the fields' own types and the errors, but not how a field of bytes is read.
        return core_schema.typed_dict_schema(
            fields, extra_behavior="forbid", config=core_schema.CoreConfig(val_json_bytes="base64")
        )

    # The schema says what is in the dict, which no annotation could.
    return TypeAdapter(Annotated[dict, GetPydanticSchema(schema)], config=_CONFIG)  # pyright: ignore[reportUnknownArgumentType, reportMissingTypeArgument]


_CONFIG = ConfigDict(
    ser_json_bytes="base64",
    val_json_bytes="base64",
    ser_json_inf_nan="constants",  # seen in the text, where null would be taken for None
    hide_input_in_errors=True,
)

_HIDDEN = "its value is written as asterisks; pass a key to look it up by, or give it a PlainSerializer"
_UNFIT_TYPES: dict[type, str] = {
    cast("type", Secret): _HIDDEN,
    SecretStr: _HIDDEN,
    SecretBytes: _HIDDEN,
    OrderedDict: "jsonb keeps no order of keys; use a list of pairs",
}

_UNFIT_KINDS = {
    "callable": "a callable",
    "generator": "an iterable that is read only once (Iterable, Generator)",
    "is-instance": "an instance of a class without a schema",
    "is-subclass": "a class",
}


def _parts(hint: object) -> Iterator[object]:
    """Yield the types that an annotation is made of, except below a serializer of the user's own."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        if any(isinstance(extra, (PlainSerializer, WrapSerializer)) for extra in arguments[1:]):
            return
        arguments = arguments[:1]
    yield typing.get_origin(hint) or hint
    yield hint
    for argument in arguments:
        yield from _parts(argument)


def _kinds(schema: object) -> Iterator[str]:
    """Yield the kinds of core schema that JSON input must meet: not what has a default, or a function before it."""
    if isinstance(schema, dict):
        node = cast("dict[str, object]", schema)
        kind = node.get("type")
        if isinstance(kind, str):
            yield kind
        if kind not in ("default", "function-before", "function-wrap", "function-plain"):
            for key, value in node.items():
                if key not in ("python_schema", "strict_schema", "serialization", "computed_fields", "metadata"):
                    yield from _kinds(value)
    elif isinstance(schema, list):
        for item in cast("list[object]", schema):
            yield from _kinds(item)


# --- What needs no reading back ---------------------------------------------------------------------------------------

_Writers = Mapping[type, Callable[[Any], str]]

_PLAIN_CHARACTERS = 4_000
"""The longest text that is written without reading it back; numbers of more than 4,300 digits cannot be read."""

_SURROGATE = re.compile("[\ud800-\udfff]")

_written_text = json.encoder.encode_basestring
"""Writes text as pydantic does: what JSON must escape, and nothing else."""

_WRITERS: _Writers = {
    int: int.__repr__,
    str: _written_text,
    bool: {False: "false", True: "true"}.__getitem__,
    type(None): {None: "null"}.__getitem__,
}
"""What writes values of these very types. Where an annotation names the type itself, or a union of such types, each of
them has a form in JSON that is read back as this type and no other."""


def _plain_writers(hint: object) -> _Writers:
    """Give what writes the values of an annotation, nothing if it has other types too."""
    kinds: tuple[Any, ...] = (hint,)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = typing.get_args(hint)
    try:
        return {kind: _WRITERS[kind] for kind in kinds}
    except (KeyError, TypeError):  # another type, or one that cannot be looked up
        return {}


# --- What jsonb does to text ------------------------------------------------------------------------------------------

# jsonb writes 1e22 out in digits, and an int would arrive. Written out here already, with a point, it stays a float.
# (The first pattern begins with a plain letter to be fast. It may be found in a string too, and then does no harm.)
_EXPONENT = re.compile(r"e\+?\d+[],}]")
_EXPONENT_OR_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?e\+?\d+')


def _without_exponent(match: re.Match[str]) -> str:
    token = match[0]
    if token.startswith('"'):
        return token
    digits = f"{Decimal(token):f}"
    return digits if "." in digits else f"{digits}.0"


def _unstorable(value: object) -> Problem | None:
    """Find the first part of decoded JSON that jsonb cannot hold."""
    if isinstance(value, str) and "\0" in value:
        return (), "PostgreSQL cannot store NUL characters; remove them"
    if isinstance(value, float) and not math.isfinite(value):
        return (), "JSON has no NaN and no infinity; pass None instead"
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
    elif isinstance(value, list):
        items = enumerate(cast("list[object]", value))
    for key, item in items:
        if problem := _unstorable(item) or _unstorable(key):
            return (key, *problem[0]), problem[1]
    return None


# --- Messages: bounded, printable, with places and without values -----------------------------------------------------

_SHOWN_PROBLEMS = 5
_SHOWN_LEVELS = 12

# Their text quotes the input, or is the user's own and may.
_QUOTING_ERRORS = frozenset({"value_error", "assertion_error", "union_tag_invalid"})
_KNOWN_ERRORS = frozenset(cast("tuple[str, ...]", typing.get_args(core_schema.ErrorType))) - _QUOTING_ERRORS


def _explain(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"a validator or the comparison raised {type(error).__name__}"
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [
        f"{_dotted(problem['loc'])}: {_short(problem['msg']) if problem['type'] in _KNOWN_ERRORS else problem['type']}"
        for problem in problems[:_SHOWN_PROBLEMS]
    ]
    if more := len(problems) - len(shown):
        shown.append(f"and {more} more")
    return "; ".join(shown)


def _explain_unwritable(error: Exception) -> str:
    text = str(error) if isinstance(error, PydanticSerializationError) else ""
    for mark, why in (
        ("Unable to serialize unknown type", "it has a part whose type cannot be written as JSON; pass plain data"),
        ("Circular reference", "it is nested too deeply or contains itself; flatten it"),
        ("depth exceeded", "it is nested too deeply or contains itself; flatten it"),
        ("surrogates not allowed", "it has text with lone surrogates, which is no valid Unicode; clean it first"),
        ("invalid utf-8", "it has bytes that are no UTF-8; set ser_json_bytes and val_json_bytes in its model_config"),
    ):
        if mark in text:
            return why
    return f"it cannot be written as JSON, {type(error).__name__}"


def _dotted(place: Place) -> str:
    parts: list[str] = []
    for part in place:
        if isinstance(part, (str, int)):
            parts.append(_short(part if isinstance(part, str) and part.isidentifier() else ascii(part), 40))
        else:
            parts.append(f"<{type(part).__name__}>")  # its repr may show anything, and may raise
    if len(parts) > _SHOWN_LEVELS:
        parts[_SHOWN_LEVELS // 2 : -_SHOWN_LEVELS // 2] = ["..."]
    return ".".join(parts) or "arguments"


def _short(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
