"""Index of a pod's containers by name, which a sync of the pod looks up several times for each container.

It is kept for each pod: several large pods are synced at a time, and one index for all would be created for each lookup.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from agent.lifecycle.actions import Kind
from kube.api import core_v1

Named: TypeAlias = tuple[core_v1.Container | core_v1.EphemeralContainer, Kind]

MOST = 100_000
"""Containers in all indices, beyond which those of the pods that were looked up least recently are dropped."""


class ContainerIndex(NamedTuple):
    """The containers of one spec: of two with the same name the first is meant, a main container before others."""

    spec: core_v1.PodSpec
    named: dict[str, Named]
    init: frozenset[int]
    """IDs of the init containers' objects."""


class _Indices:
    """The indices of pods' specs, two for a pod: while a resize is pending, there is another spec with the allocated size."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[ContainerIndex, ...]] = {}
        self._size = 0

    def of(self, pod: core_v1.Pod) -> ContainerIndex:
        uid = pod.metadata.uid or ""
        known = self._pods.get(uid, ())
        for index in known:
            if index.spec is pod.spec:
                return index
        self.forget(uid)
        made = _index(pod.spec)
        self._pods[uid] = (made, *known[:1])
        self._size += sum(len(index.named) for index in self._pods[uid])
        while self._size > MOST and len(self._pods) > 1:
            self.forget(next(iter(self._pods)))
        return made

    def forget(self, uid: str) -> None:
        self._size -= sum(len(index.named) for index in self._pods.pop(uid, ()))


def _index(spec: core_v1.PodSpec) -> ContainerIndex:
    named: dict[str, Named] = {c.name: (c, Kind.EPHEMERAL) for c in reversed(spec.ephemeral_containers)}
    named.update((c.name, (c, Kind.INIT)) for c in reversed(spec.init_containers))
    named.update((c.name, (c, Kind.MAIN)) for c in reversed(spec.containers))
    return ContainerIndex(spec, named, frozenset(map(id, spec.init_containers)))


_indices = _Indices()
of, forget = _indices.of, _indices.forget
