"""Default selectors of a pod: those of its Services, or of the workload that controls it.

Topology spread uses this for pods that declare no constraints of their own. Answers are cached until a Service or a
workload changes. Upstream: pkg/scheduler/framework/plugins/helper/spread.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kube.api import apps_v1, core_v1
from kube.informer import Change, Informer
from kube.selectors import LabelSelector, Requirement, from_label_selector, from_map

MOST_REMEMBERED = 1024
KinOf = Callable[[core_v1.Pod], LabelSelector | None]
"""Returns the selector of a pod's kin, None where it has none."""


class DefaultSelectors:
    """Selectors by pod, from informers of Services and workloads."""

    def __init__(
        self,
        services: Informer[core_v1.Service],
        replica_sets: Informer[apps_v1.ReplicaSet],
        stateful_sets: Informer[apps_v1.StatefulSet],
        controllers: Informer[core_v1.ReplicationController],
    ) -> None:
        self._services: dict[str, dict[str, LabelSelector]] = {}
        self._workloads: dict[str, Informer[Any]] = {
            "ReplicaSet": replica_sets,
            "StatefulSet": stateful_sets,
            "ReplicationController": controllers,
        }
        self._remembered: dict[tuple[object, ...], LabelSelector | None] = {}
        services.subscribe(self._service_changed)
        for informer in self._workloads.values():
            informer.subscribe(self._workload_changed)

    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        namespace = change.new.metadata.namespace or ""
        known = self._services.setdefault(namespace, {})
        old = known.pop(change.key, None)
        if change.type != "DELETED" and change.new.spec.selector:
            known[change.key] = from_map(change.new.spec.selector)
        if not known:
            del self._services[namespace]  # namespaces come and go
        if known.get(change.key) != old:
            self._remembered.clear()

    def _workload_changed(self, change: Change[Any]) -> None:
        if change.type == "DELETED" or (
            change.old is not None and change.old.spec.selector != change.new.spec.selector
        ):
            self._remembered.clear()

    def of(self, pod: core_v1.Pod) -> LabelSelector | None:
        """Return the selector of a pod's kin, or None where nothing selects it."""
        owner = next((ref for ref in pod.metadata.owner_references if ref.controller), None)
        memory_key = (pod.metadata.namespace, owner.uid if owner else "", tuple(sorted(pod.metadata.labels.items())))
        if memory_key in self._remembered:
            return self._remembered[memory_key]
        requirements: dict[Requirement, None] = {}
        for selector in self._services.get(pod.metadata.namespace or "", {}).values():
            if selector.matches(pod.metadata.labels):
                requirements.update(dict.fromkeys(selector.requirements))
        complete = True
        if owner is not None and owner.kind in self._workloads:
            workload = self._workloads[owner.kind].get(f"{pod.metadata.namespace}/{owner.name}")
            complete = workload is not None
            if workload is not None:
                wanted = workload.spec.selector
                found = from_map(wanted) if isinstance(wanted, dict) else from_label_selector(wanted)
                requirements.update(dict.fromkeys(found.requirements))
        result = LabelSelector(tuple(requirements)) if requirements else None
        if complete:  # a workload that our copy does not show yet may be there the next time
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[memory_key] = result
        return result
