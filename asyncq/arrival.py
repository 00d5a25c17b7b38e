"""Compare what arrives with what was given: equal, and of the same types, in every part.

What comes in are values and what reading them back from JSON made of them; what goes out is the first place where they
differ, and how. `asyncq.args` says what counts as equal, and refuses the rest.
"""

import dataclasses
import math
from collections import OrderedDict, deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel

__all__ = ["Place", "Problem", "changed_values"]

Place = tuple[object, ...]
Problem = tuple[Place, str]
"""Where in the arguments something is wrong, and what."""

_ATOMS = frozenset({type(None), bool, int, float, str, bytes, UUID, Decimal, date, datetime, timedelta})
"""Types whose values have no parts, and are the same if they are equal."""


def changed_values(given: Mapping[Any, object], arrived: Mapping[Any, object]) -> Problem | None:
    """Find the first part of the values that arrived which is not equal to what was given, or of another type.

    Args:
        given: by name.
        arrived: what was read back, by the same names.

    >>> changed_values({"ids": [1, 2]}, {"ids": [1, True]})
    (('ids', 1), 'int would arrive as bool; annotate or pass the exact type')
    >>> changed_values({"price": 3}, {"price": 3.0}) is None
    True
    """
    for key, value in given.items():
        other = arrived[key]
        # Said twice, for speed: most arguments are atoms, and a call costs more than the comparison.
        if type(value) is type(other) and type(value) in _ATOMS and value == other:
            continue
        if problem := _changed(value, other):
            return (key, *problem[0]), problem[1]
    return None


def _changed(given: object, arrived: object) -> Problem | None:
    """Find the first part of `arrived` that is not equal to, or not of the same type as, its part of `given`."""
    kind = type(given)
    if kind is not type(arrived):
        if kind is int and type(arrived) is float and given == arrived:
            return None
        return (), f"{kind.__name__:.60} would arrive as {type(arrived).__name__:.60}; annotate or pass the exact type"
    if kind in _ATOMS:
        return None if _equal(given, arrived) else _OTHER_VALUE
    if isinstance(given, dict):
        return _changed_dict(cast("dict[object, object]", given), cast("dict[object, object]", arrived))
    if isinstance(given, (list, tuple, deque)):
        return _changed_items(cast("list[object]", given), cast("list[object]", arrived))
    if isinstance(given, (set, frozenset)):
        return _changed_keys(cast("AbstractSet[object]", given), cast("AbstractSet[object]", arrived))
    if isinstance(given, BaseModel) or (dataclasses.is_dataclass(given) and not isinstance(given, type)):
        return _changed_dict(_fields(given), _fields(arrived))
    return None if _equal(given, arrived) else _OTHER_VALUE


_OTHER_VALUE: Problem = ((), "would arrive with another value; the type's JSON form does not keep all of it")


def _changed_dict(given: Mapping[object, object], arrived: Mapping[object, object]) -> Problem | None:
    if isinstance(given, OrderedDict) and len(given) > 1:
        return (), "jsonb keeps no order of keys; pass a list of pairs instead of an OrderedDict"
    return _changed_keys(given.keys(), arrived.keys()) or changed_values(given, arrived)


def _changed_items(given: list[object], arrived: list[object]) -> Problem | None:
    if len(given) != len(arrived):
        return (), f"{len(given)} items would arrive as {len(arrived)}"
    kinds = set(map(type, given))
    if kinds <= _ATOMS and list(map(type, given)) == list(map(type, arrived)) and given == arrived:
        return None
    for index, (item, other) in enumerate(zip(given, arrived, strict=True)):
        if problem := _changed(item, other):
            return (index, *problem[0]), problem[1]
    return None


def _changed_keys(given: AbstractSet[object], arrived: AbstractSet[object]) -> Problem | None:
    if given != arrived:  # also 1 and "1", which are one key in JSON
        return (), "its keys or members would arrive changed, or fewer"
    if set(map(type, given)) == {str} == set(map(type, arrived)):
        return None
    twins = {key: key for key in arrived}  # equal keys may still differ in type: 1 and True
    for key in given:
        if problem := _changed(key, twins[key]):
            return (key, *problem[0]), problem[1]
    return None


def _fields(instance: object) -> dict[Any, object]:
    """Return what `==` compares of a model or dataclass, whether or not it defines `==`."""
    if isinstance(instance, BaseModel):
        # Not getattr, which warns of deprecated fields.
        values = {name: instance.__dict__[name] for name in type(instance).model_fields}
        return values | (instance.__pydantic_extra__ or {}) | (instance.__pydantic_private__ or {})
    fields = dataclasses.fields(cast("Any", instance))
    return {field.name: getattr(instance, field.name) for field in fields if field.compare}


def _equal(given: object, arrived: object) -> bool:
    if given == arrived:
        # Python calls a time in a named zone, whose offset is unknown, equal to one without a zone.
        return not isinstance(given, time) or (given.tzinfo is None) == (cast("time", arrived).tzinfo is None)
    if isinstance(given, datetime) and isinstance(arrived, datetime):
        # In the repeated hour of a change of clocks no datetime equals one of another zone (PEP 495).
        aware = given.tzinfo is not None and arrived.tzinfo is not None
        return aware and given.astimezone(UTC) == arrived.astimezone(UTC)
    # Where a model's own config writes NaN as text, nothing is lost, and NaN is not equal even to itself.
    return isinstance(given, float) and isinstance(arrived, float) and math.isnan(given) and math.isnan(arrived)
