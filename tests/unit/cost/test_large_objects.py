"""Checking an object takes steps in proportion to its lists and maps, whichever of them is large.

The event loop checks it: a quadratic comparison of 3 MiB stops the server for minutes. Steps are the lines of Python that are
executed and the comparisons of the field's own texts and numbers with one another. Both are counted exactly, on small objects;
what `in` of a list does inside one line is seen, too.
"""

from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from dataclasses import replace
from typing import Any, Self

import pytest

from control.registry import metadata
from control.registry.ratcheting import problems_of_change
from control.registry.storing import merge_problems
from control.registry.strategies import strategy_for
from kube import errors, serialize
from tests.support.cost import Lines
from tests.support.large_objects import LargeField, large_fields

COUNTS = (32, 64, 128)
STEEPEST = 0.1
"""The most that the square of the number of items may count: comparing each with each before it counts 0.5."""

FIRST = itertools.count(10**6, 10**4)
"""Numbers of items that no check has seen: some keep what they found."""
FIELDS = defaultdict[str, list[LargeField]](list)
for _field in large_fields():
    FIELDS[_field.resource.target].append(_field)
    if _field.type.kind == "list":
        FIELDS[_field.resource.target].append(replace(_field, equal=True))
_compared = 0
"""Comparisons of the objects' texts and numbers since the last counter was entered."""


class Steps(Lines):
    """Counts lines and comparisons while it is entered."""

    compared = 0

    def __enter__(self) -> Self:
        global _compared
        _compared = 0
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.compared = _compared

    @property
    def count(self) -> int:
        return super().count + self.compared


class Text(str):
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        global _compared
        _compared += 1
        return str.__eq__(self, other)

    def __deepcopy__(self, known: object) -> Text:
        return self


class Number(int):
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        global _compared
        _compared += 1
        return int.__eq__(self, other)

    def __deepcopy__(self, known: object) -> Number:
        return self


def counted(value: Any) -> Any:
    """Return a JSON value whose texts and numbers count the comparisons that are made with them."""
    if isinstance(value, dict):
        return {Text(key): counted(part) for key, part in value.items()}
    if isinstance(value, list):
        return [counted(part) for part in value]
    if isinstance(value, str):
        return Text(value)
    return Number(value) if type(value) is int else value


def steps(field: LargeField, count: int) -> int:
    """Check an object as a create and an update would."""
    resource = field.resource
    assert resource.type is not None
    obj = serialize.to_dict(serialize.convert(field.build(count, next(FIRST)), resource.type))
    obj = {part: counted(value) for part, value in obj.items()}
    obj |= {"apiVersion": resource.api_version, "kind": resource.kind}
    strategy = strategy_for(resource)
    with Steps() as created:
        strategy.default(obj)
        strategy.warnings_as_sent(obj)
        strategy.prepare_create(obj)
        strategy.default(obj)
        problems = metadata.validate(resource, obj["metadata"], strategy.name_errors)
        merge_problems(problems, strategy.validate(obj))
        strategy.warnings(obj, None)
        errors.invalid("", resource.kind, "large", problems)
    cost = created.count
    old, new = copy.deepcopy(obj), copy.deepcopy(obj)
    with Steps() as updated:
        strategy.prepare_update(new, old)
        strategy.default(new)
        problems = metadata.validate_update(resource, new["metadata"], old["metadata"], strategy.name_errors)
        merge_problems(problems, problems_of_change(strategy, new, old, ""))
        if "status" in resource.subresources:
            merge_problems(problems, problems_of_change(strategy, new, old, "status"))
        strategy.warnings(new, old)
        errors.invalid("", resource.kind, "large", problems)
    return cost + updated.count


def square(field: LargeField) -> float:
    """Return what the square of the number of items counts, from three points of a parabola, twice as far where it is steep.

    The lesser of the two is returned: a bound that is passed once bends the line once.
    """
    steps(field, 2)  # what is made once and kept does not count
    cost = _bend(field, *COUNTS)
    return min(cost, _bend(field, *(2 * count for count in COUNTS))) if cost > STEEPEST else cost


def _bend(field: LargeField, *counts: int) -> float:
    few, more, many = (steps(field, count) for count in counts)
    return (many - more - 2 * (more - few)) / (6 * counts[0] ** 2) if few < more < many else 0.0


@pytest.mark.parametrize("target", sorted(FIELDS))
def test_the_cost_of_checking_an_object_is_linear_in_each_of_its_lists_and_maps(target: str) -> None:
    costs = {str(field): round(square(field), 2) for field in FIELDS[target]}
    assert {field: cost for field, cost in costs.items() if cost > STEEPEST} == {}
