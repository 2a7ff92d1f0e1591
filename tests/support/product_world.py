"""Small objects of every kind a controller follows, one large one among them, and a server in memory that holds them.

The small ones belong together by their number: a small pod has the labels that the selector of the small Service selects, and
so on. The large one is related to all of them: its selectors select every small object, its labels are theirs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from kube import resources, serialize
from kube.client import Response
from kube.errors import StatusError, not_found
from kube.json_object import Object
from kube.resources import RESOURCES, Resource
from kube.schema.fields import ANY
from tests.support.large_objects import LargeField, item_of, large_fields
from tests.support.memory_api import MemoryAPI
from tests.support.minimal import minimal

NAMESPACE, LARGE = "default", "large"
TIME, EARLIER = "2025-12-31T23:59:59Z", "2025-12-31T23:59:58Z"
"""Creation of the large object, and of the small ones, which come first where objects are sorted by age."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SELECTORS = ("matchLabels", "matchExpressions", "selector", "values")
_WORDS = {
    "effect": "NoExecute",
    "protocol": "TCP",
    "operator": "NotIn",
    "status": "True",
    "apiVersion": "v1",
    "phase": "Running",
    "scopeName": "PriorityClass",
}
"""Words of enumerations, by field: one that controllers do something for."""


_SHORT = {"ipFamilies", "clusterIPs", "podIPs", "hostIPs", "podCIDRs", "accessModes"}
"""Lists that may have two items or a few."""


def fields_by_part() -> dict[tuple[str, str], list[LargeField]]:
    """Return the large fields by kind and part: those of a workload's pods and of the metadata are every kind's."""
    found: dict[tuple[str, str], dict[tuple[str, ...], LargeField]] = {}
    known = large_fields()
    of_pods = [f for f in known if f.resource.kind == "PodTemplate" and f.path[0] == "template"]
    of_all = [f for f in known if f.resource.kind == "ConfigMap" and f.path[0] == "metadata"]
    for resource in dict.fromkeys(f.resource for f in known):
        way = _TEMPLATES.get(resource.kind, ())
        own = [f for f in known if f.resource == resource]
        shared = [replace(f, resource=resource, path=(*way[:-1], *f.path)) for f in of_pods if way]
        for field in own + shared + [replace(f, resource=resource) for f in of_all]:
            for part in parts_of(field):
                found.setdefault((resource.target, part), {})[field.path] = field
    return {key: list(fields.values()) for key, fields in found.items()}


_SCALED = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
_WORKLOADS = (*_SCALED, "DaemonSet", "Job")
_TEMPLATES = dict.fromkeys(_WORKLOADS, ("spec", "template")) | {"CronJob": ("spec", "jobTemplate", "spec", "template")}


def parts_of(field: LargeField) -> tuple[str, ...]:
    """Return with which other large fields one is filled at a time; with none if it cannot be large.

    An object that demands labels which nothing has, or that has owners, is passed over by many: those are "apart", other
    selectors "selectors", and all else "spec". For each item of one list another may be copied: "together" are all but those
    that delay a deletion.
    """
    if _SHORT.intersection(field.path):
        return ()
    if "matchLabels" in field.path or field.path[-1] == "selector":
        return "apart", "together"
    if any(step in SELECTORS for step in field.path):
        return "selectors", "together"
    if "metadata" in field.path and field.path[-1] != "labels":
        return ("spec", "apart", "together") if field.path[-1] == "annotations" else ("apart",)
    return "spec", "together"


def small(resource: Resource, number: int, version: str = "1") -> Any:
    """Make the small object of a kind that has a number; `version` tells its states apart."""
    return _typed(resource, _named(resource, f"s{number}", str(number), version, {"n": str(number)}))


def large(resource: Resource, fields: list[LargeField], count: int, version: str = "1", together: bool = False) -> Any:
    """Make the large object of a kind: `count` items in each of these fields.

    `together`: each item of a list has one item in its own lists, workloads have two pods, and a Service selects nothing, so
    its Endpoints are mirrored.
    """
    obj = _named(resource, LARGE, "large", version, {"app": "x"})
    for field in sorted(fields, key=lambda field: len(field.path)):
        _fill(obj, field, count)
        if together and field.path.count("[]") == 1 and field.type.kind == "list":
            _fill_others(obj, field)
    spec = obj.get("spec", {})
    if resource.kind in _WORKLOADS:  # a workload selects the pods that it makes
        selector = spec.get("selector", {})
        spec["template"]["metadata"]["labels"] |= selector.get("matchLabels", selector)
        if resource.kind == "Deployment":  # a template that was copied from a ReplicaSet has this label
            spec["template"]["metadata"]["labels"]["pod-template-hash"] = "x"
    if together and resource.kind == "Service":
        del spec["selector"]
    if together and resource.kind in _SCALED:
        spec["replicas"] = 2
    if together and resource.kind == "StatefulSet":
        spec["podManagementPolicy"] = "Parallel"
    return _typed(resource, obj)


def _typed(resource: Resource, obj: Object) -> Any:
    assert resource.type is not None
    return serialize.convert({k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}, resource.type)


def _named(resource: Resource, name: str, number: str, version: str, selected: dict[str, str]) -> Object:
    obj = _replaced(minimal(resource, NAMESPACE, 0, "Q1NS"), selected)
    metadata = obj["metadata"]
    metadata["name"], metadata["uid"] = name, f"uid-{resource.target}-{name}"
    metadata["labels"] = {"app": "x", "n": number, "version": version}
    metadata["generation"] = int(version)
    metadata["creationTimestamp"] = TIME if name == LARGE else EARLIER
    _PARTS.get(resource.kind, lambda obj, name: None)(obj, name)
    if resource.kind == "Service":
        obj["spec"]["selector"] = selected
    return obj


def _replaced(value: Any, selected: dict[str, str]) -> Any:
    """Return a copy in which whatever selects, or is a template's label, is as given."""
    if isinstance(value, dict):
        return {k: dict(selected) if v == {"app": "x"} else _replaced(v, selected) for k, v in value.items()}
    return [_replaced(v, selected) for v in value] if isinstance(value, list) else value


def _job(obj: Object, name: str) -> None:
    labels = {"app": "x"} if name == LARGE else {"n": name[1:]}
    obj["spec"] |= {"selector": {"matchLabels": labels}, "manualSelector": True}
    obj["spec"]["template"] = {**obj["spec"]["template"], "metadata": {"labels": dict(labels)}}


def _pod(obj: Object, name: str) -> None:
    obj["spec"] |= {"nodeName": name, "schedulerName": "default-scheduler"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": TIME}
    obj["status"] = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]}


def _node(obj: Object, name: str) -> None:
    obj["spec"] = {"taints": [{"key": "k", "effect": "NoExecute"}]}
    obj["status"] = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": TIME}]}


def _volume(obj: Object, name: str) -> None:
    obj["status"] = {"phase": "Available"}


_PARTS: dict[str, Any] = {"Pod": _pod, "Job": _job, "Node": _node, "PersistentVolume": _volume}


def _fill(obj: Object, field: LargeField, count: int) -> None:
    """Add items to a field of an object, beside those that are there."""
    place: Any = obj
    for step, after in zip(field.path, field.path[1:], strict=False):
        place = _inner(place, step, [] if after == "[]" else {})
    last = field.path[-1]
    item = field.type.item or ANY
    items = [_worded(item_of(item, number)) for number in range(count)]
    if last == "ownerReferences":
        for number, owner in enumerate(items):
            owner |= {"kind": "ConfigMap", "name": f"s{number}", "uid": f"uid-configmaps-s{number}"}
    if field.type.kind == "map":
        made: Any = {f"k{number}": value for number, value in enumerate(items)}
        _inner(place, last, {}).update(made)
    else:
        _inner(place, last, []).extend(items)


def _fill_others(obj: Object, field: LargeField) -> None:
    """Add one item to a list in each item but the first of the list around it."""
    cut = field.path.index("[]")
    place: Any = obj
    for step in field.path[:cut]:
        place = place.get("k" if step == "{}" else step, {})
    for outer in place[1:]:
        for step in field.path[cut + 1 : -1]:
            outer = outer.setdefault("k" if step == "{}" else step, {})
        outer.setdefault(field.path[-1], []).append(_worded(item_of(field.type.item or ANY, 0)))


def _inner(place: Any, step: str, empty: Any) -> Any:
    """Return what is at a step below a place, made where it is missing."""
    if step == "[]":
        if not place:
            place.append(empty)
        return place[0]
    return place.setdefault("k" if step == "{}" else step, empty)


def _worded(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        if "tolerationSeconds" in value:
            value["operator"] = "Equal"
        return {k: v if v == "Equal" else _worded(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_worded(each) for each in value]
    if isinstance(value, str) and name.endswith(("Time", "Timestamp")):
        return TIME
    return _WORDS.get(name, value) if isinstance(value, str) else value


class World(MemoryAPI):
    """A server in memory that takes writes as they come: a status, a patch or a whole object, and answers discovery."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
        most_bytes: int | None = None,
    ) -> Response:
        if path in ("/api", "/apis"):
            return Response(200, {}, _discovery(path == "/api"))
        try:
            return Response(200, {}, self._answer(method, path, body))
        except StatusError as error:
            return Response(error.code, {}, msgspec.json.encode(error.to_status()))

    def clear(self, resource: Resource) -> None:
        """Remove all objects of a kind."""
        for body in list(self.objects.get(resource.path(), {}).values()):
            self.remove(serialize.decode(body, resource.type))

    def _answer(self, method: str, path: str, body: bytes) -> bytes:
        resource, namespace, name, subresource = _read_path(path)
        if resource is None:
            raise not_found("", "resources", path)
        if resource.plural == "events" or subresource not in ("", "status"):
            return body
        known = self.objects.get(resource.path(), {})
        key = f"{namespace}/{name}" if namespace else name
        if method == "GET" and not name:
            found = [obj for key, obj in known.items() if not namespace or key.startswith(f"{namespace}/")]
            revision = str(self.revision).encode()
            return b'{"metadata":{"resourceVersion":"%s"},"items":[%s]}' % (revision, b",".join(found))
        if method == "POST":
            return self._create(resource, namespace, body)
        if key not in known:
            raise not_found(resource.group, resource.plural, name)
        if method == "PUT":
            self.put(serialize.decode(body, resource.type))
        elif method == "DELETE":
            self.remove(serialize.decode(known[key], resource.type))
            return b"{}"
        return known[key]  # a patch changes nothing here: what sent it does so once

    def _create(self, resource: Resource, namespace: str, body: bytes) -> bytes:
        obj = serialize.decode(body, resource.type)
        obj.metadata.namespace = namespace or None
        obj.metadata.name = obj.metadata.name or f"{obj.metadata.generate_name}{self.revision}"
        if (f"{namespace}/{obj.metadata.name}" if namespace else obj.metadata.name) in self.objects.get(
            resource.path(), {}
        ):
            raise StatusError(409, "AlreadyExists", f"{obj.metadata.name} already exists")
        self.put(obj)
        return self.objects[resource.path()][f"{namespace}/{obj.metadata.name}" if namespace else obj.metadata.name]


def _read_path(path: str) -> tuple[Resource | None, str, str, str]:
    parts = path.strip("/").split("/")
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = resources.by_path(group, version, rest[0])
    return resource, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""


def _discovery(core: bool) -> bytes:
    groups: dict[str, dict[str, list[Object]]] = {}
    for resource in RESOURCES:
        if resource.type is not None and (resource.group == "") == core:
            served = {
                "resource": resource.plural,
                "responseKind": {"kind": resource.kind},
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "verbs": ["list", "watch", "delete", "deletecollection"],
            }
            groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(served)
    items = [
        {"metadata": {"name": group}, "versions": [{"version": v, "resources": r} for v, r in versions.items()]}
        for group, versions in groups.items()
    ]
    return msgspec.json.encode({"items": items})


@contextlib.contextmanager
def quiet() -> Any:
    """Run controllers whose lines are counted.

    The log's errors are what they are here: objects that no validation has seen. The limit of the CPU time in an iteration of
    the event loop is off, because counting multiplies that time, and the limit's own lines would depend on the machine.
    """
    import logging
    from unittest.mock import patch

    from kube import controller
    from kube.step_shares import Shares

    unlimited = Shares("reconciling", controller.STEP_SECONDS, controller.SHARE, controller.PAUSE)
    logging.disable(logging.CRITICAL)
    try:
        with patch.object(controller, "_shares", unlimited):
            yield
    finally:
        logging.disable(logging.NOTSET)
