"""Indexes of the cluster's pods and its namespaces' labels. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from netproxy.policy.pod_facts import PodFacts
from netproxy.policy.selector_index import Hint


class KnownPods:
    """Pods by key, those of this node, those of each namespace; and namespaces by label."""

    def __init__(self) -> None:
        self.pods: dict[str, PodFacts] = {}
        self.here: dict[str, PodFacts] = {}
        """Pods of this node."""
        self._in_namespace: dict[str, dict[str, PodFacts]] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._with_label: dict[tuple[str, str], dict[str, None]] = {}

    def clear(self) -> None:
        for known in (self.pods, self.here, self._in_namespace, self._labels, self._with_label):
            known.clear()

    def set_pod(self, key: str, facts: PodFacts | None) -> None:
        """Store a pod; None removes it."""
        old = self.pods.pop(key, None)
        if old is not None:
            self.here.pop(key, None)
            del self._in_namespace[old.namespace][key]
            if not self._in_namespace[old.namespace]:
                del self._in_namespace[old.namespace]
        if facts is not None:
            self.pods[key] = facts
            self._in_namespace.setdefault(facts.namespace, {})[key] = facts
            if facts.here:
                self.here[key] = facts

    def set_labels(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """Store a namespace's labels; None removes the namespace."""
        for label in (self._labels.pop(namespace, None) or {}).items():
            del self._with_label[label][namespace]
            if not self._with_label[label]:
                del self._with_label[label]
        if labels is not None:
            self._labels[namespace] = labels
            for label in labels.items():
                self._with_label.setdefault(label, {})[namespace] = None

    def labels_of(self, namespace: str) -> Mapping[str, str] | None:
        """Return a namespace's labels; None if it is not known."""
        return self._labels.get(namespace)

    def in_namespace(self, namespace: str) -> Mapping[str, PodFacts]:
        return self._in_namespace.get(namespace, {})

    def namespaces_of(self, hints: Iterable[str | Hint]) -> Iterable[str]:
        """Return the namespaces that have a name or fit a hint."""
        found: dict[str, None] = {}
        for hint in hints:
            if isinstance(hint, str):
                found[hint] = None
            elif hint is None or hint[1] is None:
                return list(self._in_namespace)
            else:
                found |= self._with_label.get((hint[0], hint[1]), {})
        return found
