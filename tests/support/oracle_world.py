"""A cluster of written objects, without processes, for tests of the simulation's rules."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from control.storage.memory import MemoryStore
from simulation.history import Acknowledged
from simulation.link import Network
from simulation.oracles.objects import Objects
from simulation.oracles.safety import Safety
from simulation.oracles.violations import Violation
from simulation.origin import ORIGIN, Origin
from tests.support.clock import FakeClock

Object = dict[str, Any]
FOLDERS = {
    "Pod": "pods",
    "Service": "services/specs",
    "Node": "minions",
    "Namespace": "namespaces",
    "ConfigMap": "configmaps",
    "ResourceQuota": "resourcequotas",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Job": "jobs",
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "EndpointSlice": "endpointslices",
}


def obj(kind: str, name: str, spec: Object | None = None, status: Object | None = None, **meta: Any) -> Object:
    """Return an object in the namespace default."""
    namespace = {} if kind in ("Node", "Namespace") else {"namespace": "default"}
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", **namespace, **meta}
    return {"kind": kind, "metadata": metadata, "spec": spec or {}, "status": status or {}}


def pod(name: str, node: str = "", cpu: str = "1", phase: str = "Running", **meta: Any) -> Object:
    """Return a pod."""
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    return obj("Pod", name, {"containers": containers, "nodeName": node}, {"phase": phase}, **meta)


def changed(original: Object, **meta: Any) -> Object:
    """Return a copy of an object with other metadata."""
    copied = copy.deepcopy(original)
    copied["metadata"].update(meta)
    return copied


def request(method: str, path: str, agent: str = "kubectl", at: float = 0.0) -> Origin:
    """Return a request of which writes are the effect."""
    return Origin(method, path, agent, None, at)


class World:
    """The cluster; `found` is what the rules have reported."""

    def __init__(self) -> None:
        self.clock, self.nodes = FakeClock(), list[Any]()
        self.store, self.network = MemoryStore(self.clock), Network(random.Random(0))
        self.objects, self.found = Objects(self.store), list[Violation]()
        self.listeners: list[Callable[[Acknowledged], None]] = []
        self.deletions: list[Callable[[str], int]] = []
        self.safety = Safety(self, self.objects, self, self.found.append)  # type: ignore[arg-type]

    async def write(self, *objects: Object, by: Origin | None = None) -> list[str]:
        """Write objects one after the other, and return the rules that were broken."""
        token = ORIGIN.set(by)
        try:
            for each in objects:
                key, value = self.key(each), json.dumps(each).encode()
                present = await self.store.get(key)
                await (
                    self.store.create(key, value)
                    if present is None
                    else self.store.update(key, value, present.revision)
                )
        finally:
            ORIGIN.reset(token)
        return self.rules

    async def remove(self, each: Object, *, by: Origin | None = None) -> list[str]:
        """Remove an object, and return the rules that were broken."""
        token = ORIGIN.set(by)
        try:
            await self.store.delete(self.key(each))
        finally:
            ORIGIN.reset(token)
        return self.rules

    @property
    def rules(self) -> list[str]:
        """Rules that were broken so far."""
        assert self.objects.failures == []
        return [violation.rule for violation in self.found]

    @staticmethod
    def key(each: Object) -> str:
        """Return the key of an object in the store."""
        meta = each["metadata"]
        place = f"{meta['namespace']}/" if "namespace" in meta else ""
        return f"/registry/{FOLDERS[each['kind']]}/{place}{meta['name']}"
