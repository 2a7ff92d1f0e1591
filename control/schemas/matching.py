"""Selection of the alternative (anyOf, oneOf) whose errors are reported for a value that matches none of them.

kube-openapi counts the checks that apply to a value and its parts (MatchCount), whether they pass or not, and takes the
highest count. Here, where alternatives contain alternatives, the one with the most checks counts, valid or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from control.schemas.schema import Schema

_EACH = 4
"""Checks of every value: its enumeration, its alternatives (two) and the schema as a whole."""


def closest(value: Any, alternatives: Sequence[Schema]) -> int:
    """Return the position of the alternative whose checks apply to most of a value, the first of several."""
    if len(alternatives) == 1:
        return 0
    counts = [_checks(value, each) for each in alternatives]
    return counts.index(max(counts))


def _checks(value: Any, schema: Schema) -> int:
    """Count the checks that apply to a value."""
    if value is None:
        return int(schema.nullable or not schema.type)
    count = _EACH + _of_type(value, schema)
    if type(value) is dict:
        count += 1 + sum(_checks(part, known) for key, part in value.items() if (known := schema.below(key)))
    elif type(value) is list:
        count += 2 + (sum(_checks(part, schema.items) for part in value) if schema.items is not None else 0)
    elif type(value) is str:
        count += 2 if schema.format else 1
    elif type(value) is not bool:
        count += 2
    for alternatives in (schema.any_of, schema.one_of):
        count += max((_checks(value, each) for each in alternatives), default=0)
    return count + sum(_checks(value, each) for each in schema.all_of)


def _of_type(value: Any, schema: Schema) -> int:
    """Count the check of the type: once if there is a type or format, and once more if the value has it."""
    if not schema.type:
        return 2 if schema.format or schema.int_or_string else 0
    return (
        2 if isinstance(value, _CLASSES[schema.type]) and isinstance(value, bool) == (schema.type == "boolean") else 1
    )


_CLASSES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": (int, float),
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}
