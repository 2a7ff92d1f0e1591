"""Time on the event loop for an object just below the weight from which on a thread processes it: about 10 ms at most.

The dearest bodies of every kind: as many of the smallest items, and as many full ones, as each list and map takes below that
weight. Steps are lines of Python, of which a millisecond has 15 000 to 25 000.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from control.auth.user import UserInfo
from control.decoding.decode import Decoder
from control.event_loop.weight import LARGE, weight
from control.registry import creation, updating
from control.registry.context import Context
from control.registry.strategies import strategy_for
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.large_objects import LargeField
from tests.unit.cost.test_large_objects import FIELDS, Steps

MOST_STEPS = 140_000
"""Of each of the pieces of work that `control.event_loop.offload` is given."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def bodies(field: LargeField) -> Iterator[bytes]:
    """Return the largest objects with full items, and with the smallest, that are worked on here."""
    for smallest in (True, False):
        few, many = 1, 2
        while weight(body(field, many, smallest)) < LARGE:
            few, many = many, 2 * many
        while many - few > few // 50 + 1:
            middle = (few + many) // 2
            if weight(body(field, middle, smallest)) < LARGE:
                few = middle
            else:
                many = middle
        yield body(field, few, smallest)


def body(field: LargeField, count: int, smallest: bool) -> bytes:
    obj = field.build(1 if smallest else count, 1000)
    if smallest:
        place: Any = obj
        for step in field.path[:-1]:
            place = place[0] if step == "[]" else place["k"] if step == "{}" else place[step]
        last: Any = {"[]": 0, "{}": "k"}.get(field.path[-1], field.path[-1])
        kind = field.type.item.kind if field.type.item is not None else "any"
        item: Any = {"struct": {}, "map": {}, "list": []}.get(kind, "")
        place[last] = [item] * count if field.type.kind == "list" else {f"{n:x}": item for n in range(count)}
    return msgspec.json.encode(obj)


def dearest(field: LargeField, sent: bytes) -> int:
    """Return the steps of the dearest piece of what a create does with a body, and an update."""
    resource = field.resource
    strategy, context, most = strategy_for(resource), Context(UserInfo("u"), field_manager="m"), 0
    decoder = Decoder(resource.type, resource.api_version, resource.kind)
    namespace = "d" if resource.namespaced else ""

    @contextlib.contextmanager
    def counted() -> Iterator[None]:
        nonlocal most
        steps = Steps()
        try:
            with steps:
                try:
                    yield
                except StatusError as error:
                    msgspec.json.encode(error.to_status())
        finally:
            most = max(most, steps.count)

    obj: Object = {}
    with counted():
        obj = decoder.decode(sent, "application/json", "Warn", [])
    if not obj:
        return most
    meta = obj.setdefault("metadata", {})
    if namespace:
        meta["namespace"] = namespace
    with counted():
        creation.fill(context, strategy, obj, "", NOW)
    with counted():
        creation.prepare(context, strategy, namespace, obj)
    with counted():
        creation.validate(context, strategy, obj)
    old, new = msgspec.json.decode(msgspec.json.encode(obj)), decoder.decode(sent, "application/json", "Ignore", [])
    new.setdefault("metadata", {}).update({part: old["metadata"][part] for part in ("uid", "creationTimestamp")})
    with counted():
        updating._default(context, strategy, new, old, "", NOW)
    with counted():
        updating._prepare(strategy, new, old, "")
    with counted():
        updating.validate(context, strategy, new, old, "", "large")
    return most


def kinds() -> Iterator[object]:
    for target in sorted(FIELDS):  # a template's fields are a pod's
        yield pytest.param(target, marks=[pytest.mark.long] if target == "podtemplates" else [])


@pytest.mark.parametrize("target", kinds())
def test_what_the_event_loop_does_at_once_with_an_object_is_bounded(target: str) -> None:
    for field in FIELDS[target]:
        dearest(field, body(field, 1, smallest=False))  # what is made once and kept does not count
    costs = {str(field): max(dearest(field, sent) for sent in bodies(field)) for field in FIELDS[target]}
    assert {field: cost for field, cost in costs.items() if cost > MOST_STEPS} == {}
