"""Arguments arrive equal and of the same type, or are refused: at registration, or at defer, but not at run time."""

import dataclasses
import functools
import json
import math
import sys
import typing
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from ipaddress import IPv6Address
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasPath,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NaiveDatetime,
    PlainSerializer,
    PrivateAttr,
    SecretBytes,
    SecretStr,
    ValidationError,
    computed_field,
)
from typing_extensions import TypedDict

from asyncq.args import MAX_ARGS_BYTES, Arguments, UndecodableArgsError
from asyncq.errors import ConfigurationError, InvalidArgsError


class Colour(Enum):
    RED = "red"


class Shape(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Tone(StrEnum):
    SOFT = "soft"


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    depth: int
    mode: str


@dataclasses.dataclass
class Money:
    amount: Decimal
    raw: bytes = b""


class Address(BaseModel):
    model_config = ConfigDict(extra="forbid")

    street: str = Field(alias="Street")
    tags: set[str] = set()

    @computed_field
    @property
    def loud(self) -> str:
        return self.street.upper()


class Home(Address):
    floor: int = 0


class Person(BaseModel):
    name: str = Field(validation_alias=AliasPath("names", 0), serialization_alias="fullName")
    address: Address | None = None


class Cat(BaseModel):
    kind: Literal["cat"] = Field(default="cat", alias="type")
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = Field(default="dog", alias="type")
    at: datetime | None = None


type_of_pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Tree(BaseModel):
    children: list["Tree"] = []


def arguments_for(hint: object) -> Arguments:
    def handler(value: object) -> None: ...

    handler.__annotations__["value"] = hint
    return Arguments.of(handler, task="t")


def jsonb(text: str) -> str:
    """What PostgreSQL makes of JSON: keys sorted by length and bytes, the last of twins, numbers without exponent."""

    def written(value: object) -> str:
        if isinstance(value, dict):
            members = typing.cast("dict[str, object]", value).items()
            by_length = sorted(members, key=lambda member: (len(member[0].encode()), member[0].encode()))
            return "{" + ", ".join(f"{json.dumps(key)}: {written(item)}" for key, item in by_length) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(written, typing.cast("list[object]", value))) + "]"
        if isinstance(value, Decimal):
            return f"{abs(value) if value == 0 else value:f}"
        return json.dumps(value, ensure_ascii=False)

    return written(json.loads(text, parse_float=Decimal))


def typed(value: object) -> object:
    """The types of a value and of its parts, for == says nothing about types."""
    if isinstance(value, dict):
        members = typing.cast("dict[object, object]", value)
        return type(members), {key: (type(key), typed(item)) for key, item in members.items()}
    if isinstance(value, (list, tuple, deque)):
        items = typing.cast("list[object]", value)
        return type(items), [typed(item) for item in items]
    if isinstance(value, (set, frozenset)):
        elements = typing.cast("set[object]", value)
        return type(elements), {element: typed(element) for element in elements}
    if isinstance(value, BaseModel):
        return type(value), typed(dict(value))
    return type(value)


def arrived(arguments: Arguments, value: object) -> object:
    args, kwargs = arguments.load(jsonb(arguments.dump((value,), {})))
    assert args == ()
    return kwargs["value"]


def shown(part: object) -> str:
    """An id for a parameter, without addresses, which are new in each run."""
    return repr(part).partition(" at 0x")[0][:40]


def refusal(arguments: Arguments, *args: object, **kwargs: object) -> str:
    with pytest.raises(InvalidArgsError) as caught:
        arguments.dump(args, kwargs)
    message = str(caught.value)
    assert message.startswith(f"{arguments.task}: ")
    assert len(message) < 2000
    assert message.isprintable()
    return message


def nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


# --- What arrives -----------------------------------------------------------------------------------------------------

KATHMANDU = timezone(timedelta(hours=5, minutes=45))


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 2**70),
        (int, -(10**4000)),
        (float, 1e22),
        (float, 5e-324),
        (float, sys.float_info.max),
        (Any, 1e22),
        (Any, [1.0, 1, True, None, "1e22,", {"a": 1e300}]),
        (int | float, 1e16),
        (int | float, 10**16),
        (object, {"a\\u0000": "b\\u0000 and NaN, Infinity"}),
        (datetime, datetime(2024, 2, 29, 23, 59, 59, 123456, KATHMANDU)),
        (AwareDatetime, datetime(1, 1, 1, tzinfo=UTC)),
        (datetime, datetime(2024, 2, 29, 1, 2, 3, 4)),  # noqa: DTZ001 - a naive one must stay naive
        (NaiveDatetime, datetime(9999, 12, 31)),  # noqa: DTZ001
        (date, date(1, 1, 1)),
        (time, time(23, 59, 59, 999999)),
        (time, time(1, tzinfo=KATHMANDU)),
        (timedelta, timedelta(days=-1, microseconds=1)),
        (timedelta, timedelta.max),
        (timedelta, timedelta.min),
        (uuid.UUID, uuid.UUID(int=7)),
        (Decimal, Decimal("0.10")),
        (Decimal, Decimal("1E+50")),
        (bytes, bytes(range(256))),
        (list[bytes | None], [bytes(range(256)), None]),
        (set[int], {1, 2, 3}),
        (frozenset[tuple[int, str]], frozenset({(1, "a")})),
        (tuple[int, ...], (1, 2)),
        (tuple[int, str], (1, "a")),
        (deque[int], deque([1, 2])),
        (defaultdict[str, list[int]], defaultdict(list, {"a": [1]})),
        (Counter[str], Counter("aab")),
        (Sequence[int], [1, 2]),
        (Mapping[str, int], {"b": 1, "aa": 2, "a": 3}),
        (dict[int, str], {10: "a", 9: "b"}),
        (dict[uuid.UUID, date], {uuid.UUID(int=1): date(2024, 1, 1)}),
        (Colour, Colour.RED),
        (Level, Level.LOW),
        (Tone, Tone.SOFT),
        (Colour | Shape, Colour.RED),
        (Path, Path("/srv/x")),
        (Fraction, Fraction(1, 3)),
        (IPv6Address, IPv6Address("::1")),
        (Literal["a", 1], 1),
        (str | None, None),
        (str | int, "7"),
        (uuid.UUID | str, uuid.UUID(int=1)),
        (Point, Point(1, 2)),
        (Options, {"depth": 3}),
        (Money, Money(Decimal("0.10"), bytes(range(256)))),
        (Address, Address(Street="High", tags={"a"})),
        (Person, Person.model_validate({"names": ["Ann"], "address": {"Street": "High"}})),
        (type_of_pet, Cat(lives=3)),
        (list[type_of_pet], [Dog(at=datetime(2024, 1, 1, tzinfo=UTC)), Cat()]),
        (Tree, Tree(children=[Tree(), Tree(children=[Tree()])])),
        (Annotated[int, Field(gt=3)], 4),
        (
            Annotated[SecretStr, PlainSerializer(lambda secret: typing.cast("SecretStr", secret).get_secret_value())],
            SecretStr("s"),
        ),
        (Any, nested(150)),
    ],
    ids=shown,
)
def test_a_value_arrives_equal_and_of_the_same_type(hint: object, value: object) -> None:
    came = arrived(arguments_for(hint), value)
    assert came == value
    assert typed(came) == typed(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)


@given(json_values)
def test_any_json_value_without_nul_arrives(value: object) -> None:
    if "\0" in "".join(texts(value)):
        assert "NUL" in refusal(arguments_for(Any), value)
    else:
        came = arrived(arguments_for(Any), value)
        assert came == value
        assert typed(came) == typed(value)


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in typing.cast("dict[str, object]", value).items():
            yield key
            yield from texts(item)
    elif isinstance(value, list):
        for item in typing.cast("list[object]", value):
            yield from texts(item)


class Everything(BaseModel):
    when: AwareDatetime
    naive: NaiveDatetime
    day: date
    clock: time
    span: timedelta
    amount: Decimal
    ratio: float
    number: int | float
    key: uuid.UUID
    keyed: dict[int, tuple[bool, str]]
    members: frozenset[int]


@given(
    st.builds(
        Everything,
        # Before 1972 some zones had offsets in seconds; see the next test.
        when=st.datetimes(min_value=datetime(1972, 6, 1), max_value=datetime(9999, 12, 30), timezones=st.timezones()),  # noqa: DTZ001
        naive=st.datetimes(),
        day=st.dates(),
        clock=st.times(),
        span=st.timedeltas(),
        amount=st.decimals(allow_nan=False, allow_infinity=False),
        ratio=st.floats(allow_nan=False, allow_infinity=False),
        number=st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        key=st.uuids(),
        keyed=st.dictionaries(st.integers(), st.tuples(st.booleans(), st.text('abc\\"u0{}[],:e+1'))),
        members=st.frozensets(st.integers()),
    )
)
def test_generated_models_arrive(value: Everything) -> None:
    came = arrived(arguments_for(Everything), value)
    assert isinstance(came, Everything)
    # The two sides may have different zones: what is promised is the instant.
    assert came.when.astimezone(UTC) == value.when.astimezone(UTC)
    assert came.model_copy(update={"when": value.when}) == value
    assert typed(came) == typed(value)


def test_a_zone_with_an_offset_in_seconds_is_refused_since_its_text_has_only_minutes() -> None:
    paris_in_1900 = datetime(1900, 1, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))
    assert paris_in_1900.utcoffset() == timedelta(minutes=9, seconds=21)
    assert "value: " in refusal(arguments_for(datetime), paris_in_1900)


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize(("month", "day"), [(3, 31), (10, 27)])
def test_a_time_in_the_hour_of_a_clock_change_arrives_as_the_same_instant(month: int, day: int, fold: int) -> None:
    given_time = datetime(2024, month, day, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"), fold=fold)
    for hint, value in ((datetime, given_time), (list[datetime], [given_time])):
        came = arrived(arguments_for(hint), value)
        came = typing.cast("list[object]", came)[0] if isinstance(came, list) else came
        assert isinstance(came, datetime)
        assert came.astimezone(UTC) == given_time.astimezone(UTC)


# --- What is written without reading it back --------------------------------------------------------------------------

plain_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=4_290, max_value=4_310).map(lambda digits: -(10**digits))
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.text(st.sampled_from('\\u0e1"\0\n\x1e\x7f\ud800\udfff\U0001f600'))
    | st.sampled_from([Level.LOW, Tone.SOFT, "x" * 3_990, "x" * 4_010, [1], {"a": 1}])
)
plain_kinds = st.lists(st.sampled_from([int, str, bool, type(None)]), min_size=1, unique=True).map(tuple)


@functools.cache
def plain_arguments(kinds: tuple[type, ...]) -> Arguments:
    def handler(a: object, /, b: object) -> None: ...

    hint: Any = kinds[0]
    for kind in kinds[1:]:
        hint |= kind
    handler.__annotations__.update({"a": hint, "b": hint})
    return Arguments.of(handler, task="t")


def outcome(arguments: Arguments, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[bool, str]:
    try:
        return True, arguments.dump(args, kwargs)
    except InvalidArgsError as error:
        return False, str(error)


@settings(deadline=None)
@given(plain_kinds, plain_values, plain_values, st.sampled_from([(), ("b",)]))
def test_what_is_not_read_back_is_what_would_have_been_if_it_were(
    kinds: tuple[type, ...], a: object, b: object, named: tuple[str, ...]
) -> None:
    arguments = plain_arguments(kinds)
    proving = dataclasses.replace(arguments, _plain={name: ("", {}) for name in arguments._plain})
    args, kwargs = ((a,), {"b": b}) if named else ((a, b), {})
    stored, text = outcome(arguments, args, kwargs)
    assert (stored, text) == outcome(proving, args, kwargs)
    if stored:
        came = arguments.load(jsonb(text))
        assert came == ((a,), {"b": b})
        assert typed(came) == typed(((a,), {"b": b}))


@pytest.mark.parametrize(
    ("hint", "value"),
    [(int, 7), (str, "seven ü"), (bool, True), (None, None), (int | None, None), (str | int, 7), (bool | None, False)],
    ids=shown,
)
def test_plain_annotations_are_not_read_back(hint: object, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would say nothing if they were."""
    monkeypatch.delattr(Arguments, "_write_proven")
    arguments = arguments_for(hint)
    assert arguments.dump((value,), {}) == arguments.dump((), {"value": value})


def test_an_int_for_a_float_is_accepted_where_no_digit_is_lost() -> None:
    assert arrived(arguments_for(float), 3) == 3
    assert arrived(arguments_for(list[float]), [1, 2.5]) == [1, 2.5]
    assert "another" not in refusal(arguments_for(float), 2**53 + 1)


def test_a_number_with_an_exponent_is_written_so_that_jsonb_keeps_it_a_float() -> None:
    assert arguments_for(Any).dump(([1e22, "1e22", '",1e22]'],), {}) == (
        r'{"value":[10000000000000000000000.0,"1e22","\",1e22]"]}'
    )


def test_nan_is_accepted_where_the_type_writes_it_in_a_form_of_its_own() -> None:
    class Reading(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan="strings")
        value: float

    came = arrived(arguments_for(Reading), Reading(value=math.nan))
    assert isinstance(came, Reading)
    assert math.isnan(came.value)


# --- Calling ----------------------------------------------------------------------------------------------------------


NOTHING: dict[str, object] = {}


def positional(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "text", "call"),
    [
        ((1,), NOTHING, '{"a":1}', ((1, 2), NOTHING)),
        ((1, 5), {"d": 6}, '{"a":1,"b":5,"d":6}', ((1, 5), {"d": 6})),
        ((1, 5, 7), NOTHING, '{"a":1,"b":5,"c":7}', ((1, 5), {"c": 7})),
        ((1,), {"c": 7, "d": 8}, '{"a":1,"c":7,"d":8}', ((1, 2), {"c": 7, "d": 8})),
    ],
)
def test_only_what_was_passed_is_stored_and_the_handler_can_be_called_with_it(
    args: tuple[object, ...], kwargs: dict[str, object], text: str, call: object
) -> None:
    arguments = Arguments.of(positional, task="t")
    assert arguments.dump(args, kwargs) == text
    assert arguments.load(text) == call


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing a required .*argument: 'a'"),
        ((1, 2, 3, 4), {}, "too many positional arguments"),
        ((1,), {"x": 1}, "unexpected keyword argument 'x'"),
        ((1, 2, 3), {"c": 4}, "multiple values for argument 'c'"),
        ((1,), {"b": 4}, "(?=.*'b').*positional.only"),
        ((), {"a": 4}, "(?=.*'a').*(positional.only|missing)"),
    ],
)
def test_a_call_that_python_would_refuse_is_refused_in_its_words(
    args: tuple[object, ...], kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError):
        typing.cast("Callable[..., object]", positional)(*args, **kwargs)
    with pytest.raises(InvalidArgsError, match=f"^t: .*{message}"):
        Arguments.of(positional, task="t").dump(args, kwargs)


def test_parameters_may_have_any_name(recwarn: pytest.WarningsRecorder) -> None:
    def handler(self: int, model_config: int, json: int, copy: int, *, schema: int, args: int, given: int) -> None: ...

    arguments = Arguments.of(handler, task="t")
    assert arguments.load(arguments.dump((1, 2, 3, 4), {"schema": 5, "args": 6, "given": 7})) == (
        (),
        {"self": 1, "model_config": 2, "json": 3, "copy": 4, "schema": 5, "args": 6, "given": 7},
    )
    assert not recwarn.list


def test_a_handler_without_parameters_stores_an_empty_object() -> None:
    def handler() -> None: ...

    arguments = Arguments.of(handler, task="t")
    assert arguments.dump((), {}) == "{}"
    assert arguments.load("{}") == ((), {})
    assert "too many positional" in refusal(arguments, 1)


def test_wrapped_partial_bound_and_callable_handlers_are_read_as_they_are_called() -> None:
    def handler(a: "Money", b: "Options") -> None: ...

    handler.__annotations__["return"] = "NotImportableAtRunTime"

    @functools.wraps(handler)
    def wrapper(*args: object) -> None: ...

    class Service:
        def method(self, a: "Money") -> None: ...

        def __call__(self, a: "Money") -> None: ...

    money = Money(Decimal(1))
    assert Arguments.of(wrapper, task="t").load('{"a": {"amount": "1"}, "b": {}}') == ((), {"a": money, "b": {}})
    partial = functools.partial(typing.cast("Callable[..., object]", handler), b={"depth": 1})
    for other in (partial, Service().method, Service()):
        assert Arguments.of(other, task="t").load('{"a": {"amount": "1"}}') == ((), {"a": money})


def test_a_string_annotation_may_name_what_the_handler_closes_over() -> None:
    class Local(BaseModel):
        n: int

    def handler(value: "Local") -> type[Local]:
        return Local

    assert arrived(Arguments.of(handler, task="t"), Local(n=1)) == Local(n=1)


# --- Refused at registration ------------------------------------------------------------------------------------------


class Plain:
    pass


class WithCallback(BaseModel):
    callback: Callable[[], None]


Unfinished = pydantic.create_model("Unfinished", later=typing.cast("Any", ("NotDefinedAnywhere", ...)))


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (Plain, "Plain"),
        (list[Plain], "Plain"),
        ("Missing", "'Missing'.* cannot be resolved"),
        ("list[Missing]", "cannot be resolved"),
        (5, "no schema"),
        (Unfinished, "not defined"),
        (Callable[[], int], "a callable"),
        (Callable[[], int] | None, "a callable"),
        (WithCallback, "a callable"),
        (type[int], "a class"),
        (Iterable[int], "read only once"),
        (Generator[int, None, None], "read only once"),
        (Iterator[int], "no schema"),
        (SecretStr, "SecretStr.* asterisks"),
        (dict[str, SecretBytes | None], "SecretBytes.* asterisks"),
        (pydantic.Secret[int], "asterisks"),
        (OrderedDict[str, int], "no order"),
    ],
    ids=shown,
)
def test_a_type_whose_values_cannot_arrive_is_refused_at_registration(hint: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^task t, parameter 'value'.*{message}"):
        arguments_for(hint)


def test_a_model_may_have_a_callable_that_defaults() -> None:
    class Hook(BaseModel):
        n: int
        hook: Callable[[], None] | None = None

    arguments = arguments_for(Hook)
    assert arrived(arguments, Hook(n=1)) == Hook(n=1)
    assert "value: it has a part whose type cannot be written" in refusal(arguments, Hook(n=1, hook=print))


def starred(*many: int) -> None: ...


def double_starred(**named: int) -> None: ...


def defaulting(hint: object, default: object) -> Callable[..., object]:
    def handler(value: object = default) -> None: ...

    handler.__annotations__["value"] = hint
    return handler


def unannotated(value: int) -> None: ...


del unannotated.__annotations__["value"]


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (starred, r"'many': \*args and \*\*kwargs cannot be stored; name each parameter"),
        (double_starred, r"'named': \*args and \*\*kwargs"),
        (unannotated, "'value' has no annotation; add one"),
        (defaulting(int, "7"), "'value': its default does not fit .*valid integer"),
        (defaulting(str, None), "'value': its default does not fit .*valid string"),
        (defaulting(Annotated[int, Field(gt=0)], 0), "'value': its default does not fit .*greater than 0"),
    ],
)
def test_a_signature_that_cannot_be_stored_is_refused(handler: Callable[..., object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^task app.t, parameter {message}"):
        Arguments.of(handler, task="app.t")


def test_defaults_of_all_sorts_are_accepted() -> None:
    def handler(
        *,
        a: Sequence[str] = (),
        b: float = 0,
        c: Mapping[str, int] = {},
        d: Tone = Tone.SOFT,
        e: Money = Money(Decimal(0)),  # noqa: B008
        f: Path | None = None,
        g: float = math.nan,
        h: type_of_pet = Cat(),  # noqa: B008
    ) -> None: ...

    assert Arguments.of(handler, task="t").dump((), {}) == "{}"


# --- Refused at defer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (int, "7", "value: str would arrive as int"),
        (int, "x", "value: .*valid integer"),
        (int, 7.0, "value: float would arrive as int"),
        (int, True, "value: bool would arrive as int"),
        (int, Level.LOW, "value: Level would arrive as int"),
        (int, None, "value: .*valid integer"),
        (int, object(), "value: .*type cannot be written"),
        (str, Tone.SOFT, "value: Tone would arrive as str"),
        (str, b"a", "value: bytes would arrive as str"),
        (float, Decimal("0.5"), "value: Decimal would arrive as float"),
        (AwareDatetime, datetime(2024, 1, 1), "value: .*timezone"),  # noqa: DTZ001
        (date, datetime(2024, 1, 1, tzinfo=UTC), "value: "),
        (time, time(1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")), "value: would arrive with another value"),
        (str | datetime, datetime(2024, 1, 1, tzinfo=UTC), "value: datetime would arrive as str"),
        (list[int] | set[int], {1}, "value: set would arrive as list"),
        (Colour | Shape, Shape.RED, "value: Shape would arrive as Colour"),
        (Any, (1, 2), "value: tuple would arrive as list"),
        (Any, {"a": [1, {2}]}, "value.a.1: set would arrive as list"),
        (Any, uuid.UUID(int=1), "value: UUID would arrive as str"),
        (Any, {1: 2}, "value: its keys or members would arrive changed"),
        (Any, Address(Street="x"), "value: Address would arrive as dict"),
        (list[Any], [OrderedDict[str, int](b=1, a=2)], "value.0: OrderedDict would arrive as dict"),
        (Address, Home(Street="x"), "value: Home would arrive as Address"),
        (Address, {"Street": "x"}, "value: dict would arrive as Address"),
        (Person, Person.model_construct(name="a", address=Home(Street="x")), "value.address: Home would arrive"),
        (Sequence[int], (1, 2), "value: tuple would arrive as list"),
        (list[int], [1, True], "value.1: bool would arrive as int"),
        (list[int], (x for x in (1, 2)), "value: generator would arrive as list"),
        (set[int], {True}, "value.True: bool would arrive as int"),
        (dict[int, str], {True: "a"}, "value.True"),
        (dict[int | str, int], {1: 1, "1": 2}, "value: its keys or members would arrive changed, or fewer"),
        (Options, {"depth": 1, "other": 2}, "value: its keys or members"),
        (Annotated[int, Field(gt=3)], 3, "value: .*greater than 3"),
        (Annotated[str, AfterValidator(str.strip)], " a ", "value: would arrive with another value"),
        (Literal[1], 2, "value: "),
    ],
    ids=shown,
)
def test_a_value_that_would_arrive_changed_is_refused(hint: object, value: object, message: str) -> None:
    arguments = arguments_for(hint)
    with pytest.raises(InvalidArgsError, match=f"^t: {message}"):
        arguments.dump((value,), {})


def test_what_a_model_hides_from_json_is_noticed() -> None:
    class Hidden(BaseModel):
        seen: int
        kept: int = Field(default=0, exclude=True)
        password: SecretStr = SecretStr("none")
        _own: int = PrivateAttr(0)

    arguments = arguments_for(Hidden)
    with_private = Hidden(seen=1, password=SecretStr("**********"))
    assert arrived(arguments, with_private) == with_private
    setattr(with_private, "_own", 3)  # noqa: B010 - private to the model, and its type checker
    assert "value._own: " in refusal(arguments, with_private)
    assert "value.kept: " in refusal(arguments, Hidden(seen=1, kept=5))
    message = refusal(arguments, Hidden(seen=1, password=SecretStr("hunter2")))
    assert "value.password: " in message
    assert "hunter2" not in message


def test_an_ordered_dict_within_a_model_is_refused_since_jsonb_reorders_keys() -> None:
    class Steps(BaseModel):
        order: OrderedDict[str, int]

    arguments = arguments_for(Steps)
    one = Steps(order=OrderedDict(bb=1))
    assert arrived(arguments, one) == one
    assert "value.order: jsonb keeps no order" in refusal(arguments, Steps(order=OrderedDict(bb=1, a=2)))


@pytest.mark.parametrize(
    ("hint", "value", "path"),
    [
        (str, "a\0b", "value"),
        (list[dict[str, str]], [{}, {"k": "\0"}], "value.1.k"),
        (dict[str, int], {"a\0": 1}, r"value.'a\x00'"),
        (list[Address], [Address(Street="\0")], "value.0.street"),
        (str, "\\\0", "value"),
    ],
)
def test_nul_is_refused_with_its_path(hint: object, value: object, path: str) -> None:
    assert refusal(arguments_for(hint), value).startswith(f"t: {path}: PostgreSQL cannot store NUL")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("hint", [float, float | None, Any, object])
def test_nan_and_infinity_are_refused_with_their_path(hint: object, number: float) -> None:
    assert refusal(arguments_for(hint), number).startswith("t: value: JSON has no NaN")
    assert refusal(arguments_for(dict[str, list[Any]]), {"a": [0, number]}).startswith("t: value.a.1: JSON has no NaN")


class Measured(BaseModel):
    value: float | None


class Loud(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")
    value: float


@pytest.mark.parametrize("model", [Measured, Loud])
def test_nan_within_a_model_is_refused_whatever_its_config(model: type[Measured | Loud]) -> None:
    assert "value.value: " in refusal(arguments_for(model), model(value=math.nan))


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("Infinity")])
def test_a_decimal_that_is_no_number_is_refused(value: Decimal) -> None:
    assert "value: " in refusal(arguments_for(Decimal), value)
    assert "value: " in refusal(arguments_for(Any), value)


def test_lone_surrogates_are_refused() -> None:
    assert "lone surrogates" in refusal(arguments_for(str), "\ud800")
    assert "lone surrogates" in refusal(arguments_for(dict[str, Any]), {"a": ["\udfff"]})
    assert "value: its keys" in refusal(arguments_for(dict[str, int]), {"\udfff": 1})


def test_bytes_of_a_model_that_are_no_utf8_are_refused_with_the_setting_that_helps() -> None:
    class Blob(BaseModel):
        data: bytes

    assert "ser_json_bytes" in refusal(arguments_for(Blob), Blob(data=b"\xff"))


@pytest.mark.parametrize("hint", [int, Any, float])
def test_an_int_too_long_for_python_to_read_is_refused(hint: object) -> None:
    assert refusal(arguments_for(hint), 10**5000)


def test_too_long_a_text_is_refused_with_its_size_and_the_limit() -> None:
    fits = "x" * (MAX_ARGS_BYTES - len('{"value":""}'))
    assert len(arguments_for(str).dump((fits,), {})) == MAX_ARGS_BYTES
    message = refusal(arguments_for(str), f"{fits}x")
    assert "16,777,217 bytes" in message
    assert "16,777,216" in message
    assert "bytes" in refusal(arguments_for(list[float]), [1e300] * (MAX_ARGS_BYTES // 300))


def test_a_value_nested_too_deeply_or_in_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert "nested too deeply" in refusal(arguments_for(Any), nested(100_000))
    assert "contains itself" in refusal(arguments_for(list[Any]), loop)
    for levels in range(190, 260):
        value = nested(levels)
        try:
            text = arguments_for(Any).dump((value,), {})
        except InvalidArgsError:
            continue
        assert arguments_for(Any).load(text) == ((), {"value": value})


def raise_key_error(_value: object) -> object:
    raise KeyError("hunter2")


def raise_value_error(value: object) -> object:
    raise ValueError(f"not {value}")


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("hunter2")

    def __hash__(self) -> int:
        return 1


def unequal(_value: object) -> object:
    return Unequal()


def text_of(_value: object) -> str:
    return "hunter2"


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Annotated[str, AfterValidator(raise_key_error)], "hunter2"),
        (Annotated[str, AfterValidator(raise_value_error)], "hunter2"),
        (Annotated[str, PlainSerializer(raise_key_error)], "hunter2"),
        (Annotated[str, PlainSerializer(raise_value_error)], "hunter2"),
        (Annotated[Any, BeforeValidator(unequal), PlainSerializer(text_of)], Unequal()),
        (type_of_pet, {"kind": "hunter2"}),
        (Literal["a"], "hunter2"),
        (Colour, "hunter2"),
        (int, "hunter2"),
        (datetime, "hunter2"),
    ],
    ids=[
        "validator raises KeyError",
        "validator raises ValueError",
        "serializer raises KeyError",
        "serializer raises ValueError",
        "comparison raises",
        "discriminated union",
        "literal",
        "enum",
        "int",
        "datetime",
    ],
)
def test_whatever_goes_wrong_is_an_invalid_args_error_without_the_value(hint: object, value: object) -> None:
    assert "hunter2" not in refusal(arguments_for(hint), value)


def test_pydantics_error_is_the_cause_and_hides_the_input() -> None:
    with pytest.raises(InvalidArgsError) as caught:
        arguments_for(int).dump(("hunter2",), {})
    assert isinstance(caught.value.__cause__, ValidationError)
    assert "hunter2" not in str(caught.value.__cause__)


def test_the_message_is_bounded_however_much_is_wrong() -> None:
    values = {f"{'k' * 10_000}\n{index}": "x" for index in range(1000)}
    message = refusal(arguments_for(dict[str, int]), values)
    assert message.endswith("; and 995 more")


# --- At the worker ----------------------------------------------------------------------------------------------------


def pay(amount: Annotated[int, Field(gt=0)], to: Address | None = None, note: str = "") -> None: ...


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "t: amount: Field required"),
        ('{"amount": 0}', "t: amount: Input should be greater than 0"),
        ('{"amount": 1, "secret": 2}', "t: secret: Extra inputs are not permitted"),
        ('{"amount": 1, "to": {"Street": 5}}', "t: to.Street: Input should be a valid string"),
        ('{"amount": "hunter2", "note": 3}', "t: amount: Input should be a valid integer, .*; note: Input should be"),
    ],
)
def test_args_that_do_not_fit_are_refused_with_paths_and_without_values(text: str, message: str) -> None:
    with pytest.raises(InvalidArgsError, match=f"^{message}") as caught:
        Arguments.of(pay, task="t").load(text)
    assert not isinstance(caught.value, UndecodableArgsError)
    assert "hunter2" not in str(caught.value) + str(caught.value.__cause__)


def test_a_validator_that_raises_anything_makes_an_invalid_args_error() -> None:
    with pytest.raises(InvalidArgsError, match=r"^t: a validator .* raised KeyError$"):
        arguments_for(Annotated[str, AfterValidator(raise_key_error)]).load('{"value": "a"}')
    with pytest.raises(InvalidArgsError, match=r"^t: value: value_error$"):
        arguments_for(Annotated[str, AfterValidator(raise_value_error)]).load('{"value": "hunter2"}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "3",
        "[1]",
        '"{}"',
        '{"amount": 1',
        '{"amount": 1} x',
        b"\xff",
        b'{"note": "\xff"}',
        '{"note": "\\ud800"}',
        "\ud800",
        '{"amount": ' + "1" * 5000 + "}",
        '{"amount": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=lambda text: repr(text)[:20],
)
def test_text_that_no_handler_could_read_is_undecodable(text: str | bytes) -> None:
    with pytest.raises(UndecodableArgsError, match=r"^t: ") as caught:
        Arguments.of(pay, task="t").load(text)
    assert len(str(caught.value)) < 300


def test_rows_put_in_by_sql_may_use_aliases_names_and_convertible_values() -> None:
    arguments = Arguments.of(pay, task="t")
    for key in ("Street", "street"):
        _, kwargs = arguments.load(json.dumps({"amount": "7", "to": {key: "High", "tags": ["a", "a"]}}).encode())
        assert kwargs == {"amount": 7, "to": Address(Street="High", tags={"a"})}
