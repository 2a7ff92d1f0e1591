"""Objects in which several lists and maps are large at the same time, and agree in their names.

A list that is compared with another, entry by entry, costs nothing while either of them is short: an object with one large
field (large_objects.py) does not show it. Here the n-th item of each list, and the n-th key of each map, has the same name.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from kube.json_object import Object
from kube.resources import Resource
from kube.schema.fields import ANY, FieldType, field_types
from tests.support.large_objects import LargeField, item_of, large_fields
from tests.support.minimal import minimal

_TEMPLATES = {
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"), ("spec", "template")
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_OF_TEMPLATES = ({"metadata"}, {"volumes", "volumeMounts", "containers", "initContainers", "onExitCodes"})
"""Fields of a workload's template that are compared with fields of the workload: all of the metadata, and these."""
FORMS = AGREEING, BARE, APART = "agreeing", "bare", "apart"
"""Items have all their fields, or those alone that they must have, or names that no other list has."""
APART_BY = 10**7
GROUPS = int(os.environ.get("WHERRY_COST_GROUPS", "1"))
"""Groups of half the fields of a kind that are large together."""


def agreeing_fields() -> dict[Resource, list[LargeField]]:
    """Return the large fields of each kind, with those that kinds share: metadata, and a part of a workload's template."""
    known = large_fields()
    metadata = [field for field in known if field.resource.kind == "ConfigMap" and field.path[0] == "metadata"]
    template = [field for field in known if field.resource.kind == "PodTemplate" and field.path[0] == "template"]
    found = defaultdict[Resource, list[LargeField]](list)
    for resource in dict.fromkeys(field.resource for field in known):
        own = {field.path: field for field in known if field.resource == resource}
        for field in metadata:
            own.setdefault(field.path, replace(field, resource=resource))
        way = _TEMPLATES.get(resource.kind)
        for field in template if way else ():
            if _OF_TEMPLATES[0].intersection(field.path[1:2]) or field.path[-1] in _OF_TEMPLATES[1]:
                path = (*(way or ()), *field.path[1:])
                own.setdefault(path, replace(field, resource=resource, path=path))
        found[resource] = sorted(own.values(), key=lambda field: (len(field.path), field.path))
    return found


def groups(fields: Sequence[LargeField]) -> Iterator[list[LargeField]]:
    """Return all fields, the innermost, then half of them, differently each time: some are not checked beside others.

    With the innermost alone a list that holds others has one item, so the same before and after a change.
    """
    yield list(fields)
    around = {field.path[:end] for field in fields for end in range(1, len(field.path))}
    yield [field for field in fields if field.path not in around]
    for number in range(GROUPS if len(fields) > 2 else 0):
        chosen = random.Random(f"{fields[0].resource.target} {number}")
        yield [field for field in fields if chosen.random() < 0.5]


def build(resource: Resource, fields: Iterable[LargeField], numbers: Sequence[int], form: str = AGREEING) -> Object:
    """Make an object with an item of each number in each field, in one of the forms.

    Fields within an item are those of the first item of the list around them.
    """
    obj = _start(resource)
    for place_of_field, field in enumerate(fields):
        first = APART_BY * place_of_field if form == APART else 0
        place: Any = obj
        for step, after in zip(field.path, field.path[1:], strict=False):
            place = _inner(place, step, [] if after == "[]" else {})
        item = field.type.item or ANY
        own = [first + number for number in numbers]
        items = [_bare(item, number) if form == BARE else item_of(item, number) for number in own]
        if field.type.kind == "map":
            _inner(place, field.path[-1], {}).update({f"n{n}": each for n, each in zip(own, items, strict=True)})
        else:
            _inner(place, field.path[-1], []).extend(items)
    return obj


def _start(resource: Resource) -> Object:
    """Return a valid object where there is one; others, such as reviews, have no field but the large ones."""
    try:
        found: Object = _copied(minimal(resource, "default", 0, "Q1NS"))
        return found
    except KeyError:
        return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "large"}}


def _bare(type_: FieldType, number: int) -> Any:
    """Make an item that has the fields that it must have, and the first of the others if there are none."""
    found = item_of(type_, number)
    if type_.kind != "struct" or type_.struct is None or not isinstance(found, dict):
        return found
    needed = {field.encode_name for field in msgspec.structs.fields(type_.struct) if field.required}
    scalars = [name for name, inner in field_types(type_.struct).items() if inner.scalar]
    kept = needed or set(scalars[:1]) or set(found)
    return {name: value for name, value in found.items() if name in kept}


def _inner(place: Any, step: str, empty: Any) -> Any:
    """Return what is at a step below a place, made where it is missing."""
    if step == "[]":
        if not place:
            place.append(empty)
        return place[0]
    key = "n0" if step == "{}" else step
    if place.get(key) is None:
        place[key] = empty
    return place[key]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
