"""Default selectors of a pod: those of its Services, or of the workload that controls it.

Topology spread uses this for pods that declare no constraints of their own. Answers are cached until a Service or a
workload changes. Upstream: pkg/scheduler/framework/plugins/helper/spread.go. Unlike upstream, selectors of more than
MOST_TERMS terms are ignored: they would be compared with all pods, only for a score.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kube.api import apps_v1, core_v1, meta_v1
from kube.informer import Change, Informer
from kube.selectors import LabelSelector, Requirement, from_label_selector, from_map

MOST_REMEMBERED, MOST_TEXT = 1024, 1 << 20
"""Cached selectors, by digests of what they depend on, and characters of all of them."""
MOST_LABELS = 256
"""Labels of a pod up to which its selector is cached."""
MOST_TERMS = 256
"""Labels, expressions and values of what selects a pod's kin."""
KinOf = Callable[[core_v1.Pod], LabelSelector | None]
"""Returns the selector of a pod's kin, None if it has none."""


class DefaultSelectors:
    """Selectors by pod, from informers of Services and workloads."""

    def __init__(
        self,
        services: Informer[core_v1.Service],
        replica_sets: Informer[apps_v1.ReplicaSet],
        stateful_sets: Informer[apps_v1.StatefulSet],
        controllers: Informer[core_v1.ReplicationController],
    ) -> None:
        self._services: dict[str, dict[str, Mapping[str, str]]] = {}
        self._workloads: dict[str, Informer[Any]] = {
            "ReplicaSet": replica_sets,
            "StatefulSet": stateful_sets,
            "ReplicationController": controllers,
        }
        self._remembered: dict[bytes, LabelSelector | None] = {}
        self._text = 0
        services.subscribe(self._service_changed)
        for informer in self._workloads.values():
            informer.subscribe(self._workload_changed)

    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        namespace = change.new.metadata.namespace or ""
        known = self._services.setdefault(namespace, {})
        old = known.pop(change.key, None)
        if change.type != "DELETED" and 0 < len(change.new.spec.selector) <= MOST_TERMS:
            known[change.key] = change.new.spec.selector
        if not known:
            del self._services[namespace]  # namespaces come and go
        if known.get(change.key) != old:
            self._forget()

    def _workload_changed(self, change: Change[Any]) -> None:
        if change.type == "DELETED" or (
            change.old is not None and change.old.spec.selector != change.new.spec.selector
        ):
            self._forget()

    def _forget(self) -> None:
        self._remembered.clear()
        self._text = 0

    def of(self, pod: core_v1.Pod) -> LabelSelector | None:
        """Return the selector of a pod's kin, or None if nothing selects it."""
        owner = next((ref for ref in pod.metadata.owner_references if ref.controller), None)
        if len(pod.metadata.labels) > MOST_LABELS:
            return self._find(pod, owner)[0]
        depends_on = pod.metadata.namespace, owner.uid if owner else "", sorted(pod.metadata.labels.items())
        memory_key = hashlib.sha256(msgspec.json.encode(depends_on)).digest()
        if memory_key in self._remembered:
            return self._remembered[memory_key]
        result, complete = self._find(pod, owner)
        if complete:  # a workload that our copy does not show yet may be there the next time
            text = sum(len(r.key) + sum(map(len, r.values)) for r in result.requirements) if result is not None else 0
            if len(self._remembered) >= MOST_REMEMBERED or self._text + text > MOST_TEXT:
                self._forget()
            self._remembered[memory_key] = result
            self._text += text
        return result

    def _find(self, pod: core_v1.Pod, owner: meta_v1.OwnerReference | None) -> tuple[LabelSelector | None, bool]:
        """Return the selector of a pod's kin, and whether all that selects it is known."""
        labels = pod.metadata.labels.items()
        requirements: dict[Requirement, None] = {}
        for wanted in self._services.get(pod.metadata.namespace or "", {}).values():
            if wanted.items() <= labels and len(requirements) <= MOST_TERMS:
                requirements.update(dict.fromkeys(from_map(wanted).requirements))
        complete = True
        if owner is not None and owner.kind in self._workloads:
            workload = self._workloads[owner.kind].get(f"{pod.metadata.namespace}/{owner.name}")
            complete = workload is not None
            if workload is not None and _terms(workload.spec.selector) <= MOST_TERMS:
                found = workload.spec.selector
                found = from_map(found) if isinstance(found, dict) else from_label_selector(found)
                requirements.update(dict.fromkeys(found.requirements))
        few = 0 < len(requirements) <= MOST_TERMS
        return LabelSelector(tuple(requirements)) if few else None, complete


def _terms(selector: Any) -> int:
    """Return how many labels, expressions and values a workload's selector has."""
    if selector is None or isinstance(selector, dict):
        return len(selector or ())
    expressions = selector.match_expressions
    return len(selector.match_labels) + sum(1 + len(each.values) for each in expressions)
