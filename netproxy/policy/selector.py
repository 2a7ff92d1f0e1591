"""Pod selectors of policies. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kube import selectors
from kube.selectors import LabelSelector
from netproxy.policy.pod_facts import PodFacts


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects pods by labels, in one namespace or in all that `namespaces` matches."""

    pods: LabelSelector = selectors.EVERYTHING
    namespace: str = ""
    namespaces: LabelSelector | None = None
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        # Once: it reads all requirements, of which there may be thousands.
        object.__setattr__(self, "_hash", hash((self.pods, self.namespace, self.namespaces)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def whole_namespace(self) -> bool:
        """True if it selects all pods of one namespace."""
        return self.namespaces is None and self.pods.empty

    def matches(self, pod: PodFacts, namespace_labels: Mapping[str, str] | None) -> bool:
        """Return whether a pod is selected. Unknown labels of its namespace, None, match no selector of namespaces."""
        if self.namespaces is None:
            return pod.namespace == self.namespace and self.pods.matches(pod.labels)
        return self.has_namespace(namespace_labels) and self.pods.matches(pod.labels)

    def has_namespace(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether `namespaces` matches these labels; None, those of an unknown namespace, never match."""
        return labels is not None and self.namespaces is not None and self.namespaces.matches(labels)


EVERY_POD = Selector(namespaces=selectors.EVERYTHING)
