"""Terms that are evaluated for all pods again and again, so matches are counted as pods are added and removed (counts.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kube.api import core_v1
from kube.selectors import LabelSelector


class Pod(Protocol):
    """The part of a pod that terms compare."""

    pod: core_v1.Pod
    namespace: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """Pods that are in a namespace and match a selector."""

    namespace: str
    selector: LabelSelector
    count_terminating: bool = True
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.namespace, self.selector, self.count_terminating)))

    def __hash__(self) -> int:
        """Return what was worked out once: a selector may be as large as a pod."""
        return self._hash

    def matches(self, pod: Pod) -> bool:
        return self.concerns(pod) and self.selector.matches(pod.labels)

    def concerns(self, pod: Pod) -> bool:
        """Return whether a pod counts if the selector selects it."""
        if pod.namespace != self.namespace:
            return False
        return self.count_terminating or pod.pod.metadata.deletion_timestamp is None
