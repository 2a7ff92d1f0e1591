"""Checking an object takes steps in proportion to its lists and maps where several are large and agree in their names.

Steps are executions of a line of Python, entries that a line copies or compares in C code, and characters of the messages.
Each line is judged alone: where several lists are large, the limit that one line keeps would hide what another does for each
pair.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from control.registry import metadata
from control.registry.checks import Errors
from control.registry.ratcheting import problems_of_change
from control.registry.storing import merge_problems
from control.registry.strategies import strategy_for
from kube import serialize
from kube.json_object import Object
from kube.resources import Resource
from tests.support.agreeing_lists import FORMS, agreeing_fields, build, groups
from tests.support.copies import counting
from tests.support.large_objects import LargeField
from tests.support.lines_by_place import FOLDERS, Lines, Place, squares

ITEMS, FEW_ITEMS = 16, 8
"""Items in each list, at the least; the second for kinds of more than MANY fields."""
MANY = 60
FIELDS = {resource.target: (resource, fields) for resource, fields in agreeing_fields().items()}
FIRST = itertools.count(10**6, 10**4)
"""Numbers of items that no check has seen: some keep what they found."""
MESSAGES = ("messages", 0)
CHARACTERS = 16
"""Characters of a message that count as one step."""
_lines = Lines()
"""Those that are counted at the time."""


def _count(file: str, line: int, entries: int) -> None:
    _lines.copied(file, line, entries)


@pytest.fixture(scope="module", autouse=True)
def counted_entries() -> Iterator[None]:
    for resource, _ in FIELDS.values():
        strategy_for(resource)  # imports the modules that check it
    with counting(FOLDERS, _count):
        yield


def made(resource: Resource, fields: Sequence[LargeField], numbers: Sequence[int], form: str) -> Object:
    assert resource.type is not None
    obj: Object = serialize.to_dict(serialize.convert(build(resource, fields, numbers, form), resource.type))
    return obj | {"apiVersion": resource.api_version, "kind": resource.kind}


def created(resource: Resource, obj: Object) -> Errors:
    """Check an object as a create would."""
    strategy = strategy_for(resource)
    strategy.default(obj)
    strategy.warnings_as_sent(obj)
    strategy.prepare_create(obj)
    strategy.default(obj)
    problems = metadata.validate(resource, obj["metadata"], strategy.name_errors)
    merge_problems(problems, strategy.validate(obj))
    strategy.warnings(obj, None)
    return problems


def updated(resource: Resource, new: Object, old: Object) -> Errors:
    """Check an object as an update would, and one of the status."""
    strategy = strategy_for(resource)
    strategy.prepare_update(new, old)
    strategy.default(new)
    problems = metadata.validate_update(resource, new["metadata"], old["metadata"], strategy.name_errors)
    merge_problems(problems, problems_of_change(strategy, new, old, ""))
    for subresource in sorted({"status", "resize", "ephemeralcontainers"}.intersection(resource.subresources)):
        merge_problems(problems, problems_of_change(strategy, copy.deepcopy(new), old, subresource))
    strategy.warnings(new, old)
    return problems


def steps(resource: Resource, fields: Sequence[LargeField], count: int, form: str) -> Counter[Place]:
    """Check an object, and its change to one with the same items in the opposite order and one more."""
    global _lines
    first = next(FIRST)
    obj = made(resource, fields, range(first, first + count), form)
    old, new = copy.deepcopy(obj), made(resource, fields, range(first + count, first - 1, -1), form)
    _lines = Lines()
    with _lines:
        problems = created(resource, obj) + updated(resource, new, old)
    found = _lines.counts
    found[MESSAGES] = sum(len(problem.detail) for problem in problems) // CHARACTERS
    return found


def square(resource: Resource, fields: Sequence[LargeField], form: str) -> dict[Place, float]:
    """Return the lines whose number grows with the square of the items, also where there are twice as many of them.

    A limit that is passed once bends a line once.
    """
    size = FEW_ITEMS if len(FIELDS[resource.target][1]) > MANY else ITEMS
    counts = [steps(resource, fields, factor * size, form) for factor in (1, 2, 4)]
    found = squares(size, *counts)
    if found:
        counts.append(steps(resource, fields, 8 * size, form))
        found = {place: found[place] for place in squares(2 * size, *counts[1:]).keys() & found.keys()}
    return found


@pytest.mark.parametrize("target", sorted(FIELDS))
def test_the_cost_of_checking_an_object_is_linear_in_lists_that_agree_in_their_names(target: str) -> None:
    resource, fields = FIELDS[target]
    found = dict[Place, float]()
    for form in FORMS:
        steps(resource, fields, 2, form)  # what is made once and kept does not count
        for chosen in groups(fields):
            found |= square(resource, chosen, form) if chosen else {}
    assert found == {}
