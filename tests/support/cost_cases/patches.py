"""Patches of all kinds, server-side apply and managed fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from control.patch.apply import apply, track_update
from control.patch.json_patch import apply_json_patch
from control.patch.merge_patch import apply_merge_patch
from control.patch.schema import of_object
from control.patch.strategic import strategic_merge
from kube.api import apps_v1, core_v1
from tests.support.cost import Case
from tests.support.cost_cases.inputs import NOW, OBJECT, cases


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "1"}, "spec": spec}


def _items(count: int, name: str = "n") -> list[dict[str, Any]]:
    return [{"name": f"{name}{i}"} for i in range(count)]


def _strategic(
    old: Callable[[int], Any], patch: Callable[[int], Any]
) -> tuple[Callable[[int], Any], Callable[[Any], Any]]:
    return lambda size: (old(size), patch(size)), lambda given: strategic_merge(given[0], given[1], core_v1.Pod)


ENV = 14
STRATEGIC = {
    "merged items, all the same": _strategic(
        lambda size: pod(volumes=_items(size // ENV)), lambda size: {"spec": {"volumes": _items(size // ENV)}}
    ),
    "merged items, all new": _strategic(
        lambda size: pod(volumes=_items(size // ENV)), lambda size: {"spec": {"volumes": _items(size // ENV, "m")}}
    ),
    "merged items, reversed": _strategic(
        lambda size: pod(volumes=_items(size // ENV)), lambda size: {"spec": {"volumes": _items(size // ENV)[::-1]}}
    ),
    "deleted items": _strategic(
        lambda size: pod(volumes=_items(size // 30)),
        lambda size: {"spec": {"volumes": [{"$patch": "delete", **item} for item in _items(size // 30)]}},
    ),
    "items ordered": _strategic(
        lambda size: pod(volumes=_items(size // ENV)),
        lambda size: {
            "spec": {"$setElementOrder/volumes": _items(size // ENV)[::-1], "volumes": _items(size // ENV)[::-1]}
        },
    ),
    "scalars": _strategic(
        lambda size: {"metadata": {"finalizers": [f"f{i}" for i in range(size // 8)]}},
        lambda size: {"metadata": {"finalizers": [f"g{i}" for i in range(size // 8)]}},
    ),
    "scalars deleted": _strategic(
        lambda size: {"metadata": {"finalizers": [f"f{i}" for i in range(size // 8)]}},
        lambda size: {"metadata": {"$deleteFromPrimitiveList/finalizers": [f"f{i}" for i in range(size // 8)]}},
    ),
    "scalars ordered": _strategic(
        lambda size: {"metadata": {"finalizers": [f"f{i}" for i in range(size // 8)]}},
        lambda size: {"metadata": {"$setElementOrder/finalizers": [f"f{i}" for i in range(size // 8)][::-1]}},
    ),
    "keys retained": _strategic(
        lambda size: {"metadata": {"labels": {f"k{i}": "" for i in range(size // 10)}}},
        lambda size: {"metadata": {"labels": {"$retainKeys": [f"k{i}" for i in range(size // 10)]}}},
    ),
    "keys retained and set": _strategic(
        lambda size: {"metadata": {"labels": {}}},
        lambda size: {
            "metadata": {
                "labels": {"$retainKeys": [f"k{i}" for i in range(size // 20)]}
                | {f"k{i}": "" for i in range(size // 20)}
            }
        },
    ),
    "numbers for keys": _strategic(
        lambda size: pod(containers=[{"name": "a", "ports": [{"containerPort": i} for i in range(size // 22)]}]),
        lambda size: {
            "spec": {"containers": [{"name": "a", "ports": [{"containerPort": i} for i in range(size // 22)]}]}
        },
    ),
    "objects for keys": _strategic(
        lambda size: pod(volumes=_items(size // 30)),
        lambda size: {"spec": {"volumes": [{"name": {"a": i}} for i in range(size // 30)]}},
    ),
}


def _json_patch(
    old: Callable[[int], Any], patch: Callable[[int], Any]
) -> tuple[Callable[[int], Any], Callable[[Any], Any]]:
    return lambda size: (old(size), patch(size)), lambda given: apply_json_patch(*given)


JSON_PATCH = {
    "operations": _json_patch(
        lambda size: {"a": {}}, lambda size: [{"op": "add", "path": f"/a/k{i}", "value": 1} for i in range(size // 40)]
    ),
    "a long pointer": _json_patch(
        lambda size: {"a": 1}, lambda size: [{"op": "test", "path": "/a" * (size // 2), "value": 1}]
    ),
    "long pointers": _json_patch(
        lambda size: {"a": 1}, lambda size: [{"op": "test", "path": "/" + "~1" * 100, "value": None}] * (size // 230)
    ),
    "deeper and deeper": _json_patch(
        lambda size: {},
        lambda size: [{"op": "add", "path": "/a" * i, "value": {}} for i in range(1, int((size / 2) ** 0.5))],
    ),
    "copies": _json_patch(
        lambda size: {"a": ["x" * (size // 2)]},
        lambda size: [{"op": "copy", "from": "/a/0", "path": "/a/-"}] * (size // 80),
    ),
    "copies into itself": _json_patch(
        lambda size: {"a": {"x": "y" * 10}},
        lambda size: [{"op": "copy", "from": "", "path": f"/a/c{i}"} for i in range(size // 40)],
    ),
    "insertions at the front": _json_patch(
        lambda size: {"a": [0] * (size // 2)}, lambda size: [{"op": "add", "path": "/a/0", "value": 0}] * (size // 36)
    ),
    "removals at the front": _json_patch(
        lambda size: {"a": [0] * (size // 2)}, lambda size: [{"op": "remove", "path": "/a/0"}] * (size // 30)
    ),
    "moves": _json_patch(
        lambda size: {"a": [0] * (size // 2)},
        lambda size: [{"op": "move", "from": "/a/0", "path": "/a/1"}] * (size // 42),
    ),
    "tests": _json_patch(
        lambda size: {"a": [0] * (size // 2)}, lambda size: [{"op": "test", "path": "/a", "value": [0]}] * (size // 38)
    ),
    "a long index": _json_patch(
        lambda size: {"a": [0]}, lambda size: [{"op": "test", "path": "/a/" + "9" * size, "value": 0}]
    ),
}
MERGE_PATCH: dict[str, Callable[[int], Any]] = {
    "keys": lambda size: {f"k{i}": 1 for i in range(size // 9)},
    "nulls": lambda size: {f"k{i}": None for i in range(size // 12)},
    "objects": lambda size: {f"k{i}": {"a": {"b": 1}} for i in range(size // 24)},
}
POD_SHAPE, DEPLOYMENT_SHAPE = of_object(core_v1.Pod), of_object(apps_v1.Deployment)


def _applied(size: int) -> tuple[Any, Any]:
    volumes = _items(size // ENV)
    return pod(volumes=volumes), pod(volumes=volumes[::-1])


def _apply(given: tuple[Any, Any]) -> object:
    old, new = given
    first = apply(None, old, "one", force=False, schema=POD_SHAPE, now=NOW)
    return apply(first, new, "two", force=False, schema=POD_SHAPE, now=NOW)


def _conflicting(size: int) -> tuple[Any, Any]:
    labels = {f"k{i}": "a" for i in range(size // 12)}
    old, new = pod(), pod()
    old["metadata"]["labels"], new["metadata"]["labels"] = labels, dict.fromkeys(labels, "b")
    return old, new


def _managed(size: int) -> Any:
    obj = pod()
    obj["metadata"]["managedFields"] = [
        {
            "manager": f"m{i}",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {f"f:k{i}": {}}},
        }
        for i in range(size // 130)
    ]
    return obj


def _track(given: Any) -> object:
    return track_update(given, {**given, "spec": {"nodeName": "x"}}, "me", "Update", POD_SHAPE, NOW)


CASES = [
    *(Case(f"strategic merge: {name}", build, read, OBJECT) for name, (build, read) in STRATEGIC.items()),
    # What copies make is held to a limit of its own, in bytes of JSON.
    *(Case(f"JSON patch: {name}", build, read, OBJECT, memory=2000) for name, (build, read) in JSON_PATCH.items()),
    *cases("merge patch", MERGE_PATCH, lambda patch: apply_merge_patch({"a": 1}, patch)),
    Case("apply: items", _applied, _apply, OBJECT, memory=2000),
    Case("apply: conflicts", _conflicting, _apply, OBJECT, memory=2000),
    Case("managed fields", _managed, _track, OBJECT),
]
