"""Selections of pods that are evaluated often, so that matches are counted incrementally (pod_counts.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kube.api import core_v1
from kube.selectors import LabelSelector

ENTRY_BYTES = 100
"""Memory of an entry of a dictionary, about."""


class Pod(Protocol):
    """The part of a pod that terms compare."""

    pod: core_v1.Pod
    namespace: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class PodSelection:
    """Pods that are in a namespace and match a selector."""

    namespace: str
    selector: LabelSelector
    count_terminating: bool = True
    _hash: int = field(default=0, init=False, repr=False, compare=False)
    _size: int = field(default=-1, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.namespace, self.selector, self.count_terminating)))

    def __hash__(self) -> int:
        """Return what was worked out once: a selector may be as large as a pod."""
        return self._hash

    @property
    def size(self) -> int:
        """About how many bytes the selector takes."""
        if self._size < 0:
            object.__setattr__(self, "_size", selector_size(self.selector))
        return self._size

    def matches(self, pod: Pod) -> bool:
        return self.concerns(pod) and self.selector.matches(pod.labels)

    def concerns(self, pod: Pod) -> bool:
        """Return whether a pod counts if the selector selects it."""
        if pod.namespace != self.namespace:
            return False
        return self.count_terminating or pod.pod.metadata.deletion_timestamp is None


def selector_size(selector: LabelSelector) -> int:
    """Return about how many bytes a selector takes."""
    return sum(len(r.key) + ENTRY_BYTES * (2 + len(r.values)) + sum(map(len, r.values)) for r in selector.requirements)
