"""A small cluster in memory, for what only looks things up: admission plugins and authenticators."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

from control.auth.user import UserInfo
from control.interfaces.admission import Attributes, Operation
from kube import errors, resources
from kube.json_object import Object
from kube.selectors import LabelSelector


class Objects:
    """Objects by target, as the server's Lookup gives them; statuses are written by compare-and-swap."""

    def __init__(self, *objects: tuple[str, Object]) -> None:
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._hidden: set[tuple[str, str, str]] = set()
        for target, obj in objects:
            self.put(target, obj)

    def put(self, target: str, obj: Object, cached: bool = True) -> Object:
        """Add or replace an object; with `cached` False only the store has it yet."""
        metadata = obj.setdefault("metadata", {})
        key = (target, metadata.get("namespace", ""), metadata["name"])
        metadata.setdefault("uid", f"uid-of-{metadata['name']}")
        metadata["resourceVersion"] = str(int(metadata.get("resourceVersion", "0")) + 1)
        self._objects[key] = obj
        (self._hidden.discard if cached else self._hidden.add)(key)
        return obj

    def remove(self, target: str, namespace: str, name: str) -> None:
        del self._objects[target, namespace, name]

    def get(self, target: str, namespace: str, name: str) -> Object | None:
        key = (target, namespace, name)
        return None if key in self._hidden else self._objects.get(key)

    def list(self, target: str, namespace: str = "") -> Iterable[Object]:
        return [o for (t, ns, _), o in self._objects.items() if t == target and namespace in ("", ns)]

    def count(self, target: str, namespace: str) -> int:
        return sum(1 for _ in self.list(target, namespace))

    async def each(self, target: str, namespace: str) -> AsyncGenerator[tuple[Object, int]]:
        for obj in self.list(target, namespace):
            await asyncio.sleep(0)
            yield obj, len(json.dumps(obj))

    async def indexed(self, target: str, namespace: str, value: str) -> AsyncIterator[Object]:
        for obj in self.list(target, namespace):
            if (obj["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == value:
                yield obj

    async def select(
        self, user: str, resource: resources.Resource, namespace: str, chosen: str | LabelSelector
    ) -> AsyncIterator[Object]:
        for obj in self.list(resource.target, namespace):
            found = obj["metadata"]
            if found["name"] == chosen if isinstance(chosen, str) else chosen.matches(found.get("labels") or {}):
                yield obj

    async def resource_of(self, api_version: str, kind: str) -> resources.Resource | None:
        return resources.by_kind(api_version, kind)

    async def fresh(self, target: str, namespace: str, name: str) -> Object | None:
        return self._objects.get((target, namespace, name))

    async def create(self, target: str, obj: Object) -> Object:
        metadata = obj["metadata"]
        if (target, metadata.get("namespace", ""), metadata["name"]) in self._objects:
            raise errors.already_exists("", target, metadata["name"])
        return self.put(target, copy.deepcopy(obj))

    async def update_status(self, target: str, obj: Object) -> Object:
        metadata = obj["metadata"]
        current = self._objects[target, metadata.get("namespace", ""), metadata["name"]]
        if current["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise errors.conflict("", target, metadata["name"], errors.MODIFIED)
        changed = copy.deepcopy(current) | {"status": copy.deepcopy(obj["status"])}
        return self.put(target, changed)


ADMIN = UserInfo("admin", "", ("system:masters", "system:authenticated"))


def attributes(
    target: str,
    operation: Operation = "CREATE",
    obj: Object | None = None,
    old: Object | None = None,
    *,
    user: UserInfo = ADMIN,
    namespace: str = "",
    name: str = "",
    subresource: str = "",
    dry_run: bool = False,
) -> Attributes:
    """Build a request's attributes from an object of a target such as "pods" or "roles.rbac.authorization.k8s.io"."""
    resource = next(r for r in resources.RESOURCES if r.target == target)
    metadata = (obj or old or {}).get("metadata", {})
    return Attributes(
        resource=resource,
        operation=operation,
        user=user,
        namespace=namespace or (metadata.get("namespace", "") if resource.namespaced else ""),
        name=name or (metadata.get("name", "") if operation != "CREATE" else ""),
        subresource=subresource,
        obj=obj,
        old=old,
        dry_run=dry_run,
    )
