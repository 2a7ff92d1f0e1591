"""Index of the containers of a pod's spec by name, which a sync of the pod looks up several times for each container.

An index has the lifetime of its spec: specs are large, and they are looked up by threads and by snapshots of the resource usage
that continue after the pod is gone. Of a pod whose resize is pending there is another spec, with the allocated size.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple, TypeAlias

from agent.lifecycle.actions import Kind
from kube.api import core_v1

Named: TypeAlias = tuple[core_v1.Container | core_v1.EphemeralContainer, Kind]


class ContainerIndex(NamedTuple):
    """The containers of one spec: of two with the same name the first is meant, a main container before others."""

    spec: weakref.ref[core_v1.PodSpec]
    named: dict[str, Named]
    init: frozenset[int]
    """IDs of the init containers' objects."""


_indices: dict[int, ContainerIndex] = {}
"""By ID of the spec. Each step is one operation of the dictionary, because threads look containers up, too."""


def of(pod: core_v1.Pod) -> ContainerIndex:
    """Return the index of a pod's spec, which is created at the first lookup."""
    key = id(pod.spec)
    index = _indices.get(key)
    if index is None or index.spec() is not pod.spec:
        index = _indices[key] = _index(pod.spec, weakref.ref(pod.spec, lambda _: _indices.pop(key, None)))
    return index


def _index(spec: core_v1.PodSpec, reference: weakref.ref[core_v1.PodSpec]) -> ContainerIndex:
    named: dict[str, Named] = {c.name: (c, Kind.EPHEMERAL) for c in reversed(spec.ephemeral_containers)}
    named.update((c.name, (c, Kind.INIT)) for c in reversed(spec.init_containers))
    named.update((c.name, (c, Kind.MAIN)) for c in reversed(spec.containers))
    return ContainerIndex(reference, named, frozenset(map(id, spec.init_containers)))
