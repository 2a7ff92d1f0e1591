"""The objects of the store as the oracles see them: the newest state, decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from control.storage.memory import MemoryStore
from control.storage.memory_rows import Row

Object = dict[str, Any]
PREFIX = "/registry/"
SHORT = {
    "/registry/services/specs/": "services",
    "/registry/services/endpoints/": "endpoints",
    "/registry/minions/": "nodes",
}
QUIET = ("leases", "events", "masterleases", "/compaction")
"""Resources that are written for ever, or whose objects say nothing about others."""


class Objects:
    """Objects by resource, namespace and name; `listeners` get each change (resource, before, after, revision)."""

    def __init__(self, store: MemoryStore) -> None:
        self._by_resource: dict[str, dict[str, Object]] = {}
        self.keys: dict[int, str] = {}
        """Keys by the revision of their change."""
        self.changes: deque[tuple[int, str]] = deque(maxlen=1000)
        """Revisions and keys of the newest changes that are no heartbeats."""
        self.listeners: list[Callable[[str, Object | None, Object | None, int], None]] = []
        self.failures: list[Exception] = []
        """Errors of listeners."""
        store.subscribe(self._written)

    def all(self, resource: str, namespace: str | None = None) -> Iterator[Object]:
        """Return the objects of a resource, those of a namespace if one is given."""
        for obj in self._by_resource.get(resource, {}).values():
            if namespace in (None, obj["metadata"].get("namespace", "")):
                yield obj

    def every(self) -> Iterator[tuple[str, Object]]:
        """Return all objects with their resources."""
        for resource, found in self._by_resource.items():
            for obj in found.values():
                yield resource, obj

    def _written(self, row: Row) -> None:
        key = row.item.key
        self.keys[row.item.revision] = key
        resource = _resource(key)
        if resource in QUIET:
            return
        known = self._by_resource.setdefault(resource, {})
        before, after = known.get(key), None
        if row.deleted:
            known.pop(key, None)
        else:
            after = known[key] = msgspec.json.decode(row.item.value)
        if not _is_heartbeat(resource, before, after):
            self.changes.append((row.item.revision, key))
        try:
            for listener in self.listeners:
                listener(resource, before, after, row.item.revision)
        except Exception as error:  # of an oracle: the request that is served must not fail by it
            self.failures.append(error)


def _resource(key: str) -> str:
    for prefix, name in SHORT.items():
        if key.startswith(prefix):
            return name
    if not key.startswith(PREFIX):
        return key
    parts = key.removeprefix(PREFIX).split("/")
    return parts[1] if "." in parts[0] else parts[0]


def _is_heartbeat(resource: str, before: Object | None, after: Object | None) -> bool:
    """Return whether a node has only reported that it is there."""
    if resource != "nodes" or before is None or after is None:
        return False
    return _without_heartbeat(before) == _without_heartbeat(after)


def _without_heartbeat(node: Object) -> Object:
    conditions = [
        {key: value for key, value in each.items() if key != "lastHeartbeatTime"}
        for each in (node.get("status") or {}).get("conditions") or ()
    ]
    metadata = {
        key: value for key, value in node["metadata"].items() if key not in ("managedFields", "resourceVersion")
    }
    return {"spec": node.get("spec"), "metadata": metadata, "conditions": conditions}


def owner(obj: Object) -> Object | None:
    """Return the reference to an object's controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Object = reference
            return found
    return None


def name(obj: Object) -> str:
    """Return namespace and name for a message."""
    meta = obj["metadata"]
    return f"{obj.get('kind', '')} {meta.get('namespace', '')}/{meta['name']}"


def is_over(pod: Object) -> bool:
    """Return whether a pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_ready(pod: Object) -> bool:
    """Return whether a pod is Ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def selects(selector: Object, obj: Object) -> bool:
    """Return whether a selector's labels are those of an object."""
    labels = obj["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
