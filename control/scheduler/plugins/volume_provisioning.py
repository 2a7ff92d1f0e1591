"""Checks whether a volume could be provisioned for a node: the class's topology, and the driver's free capacity.

A driver that reports its capacity (CSIDriver.spec.storageCapacity) does so in CSIStorageCapacity objects, each for a class and
the nodes of a topology; a node fits if one of them has enough capacity for the claim (volumebinding: checkVolumeProvisions).
"""

from __future__ import annotations

from collections.abc import Iterable

from kube import quantity
from kube.api import core_v1, meta_v1, storage_v1
from kube.informer import Informer
from kube.selectors import LabelSelector, from_label_selector
from kube.volume_binding import NO_PROVISIONER


class Provisioning:
    """Checks nodes against allowed topologies and the capacity that drivers report."""

    def __init__(
        self, drivers: Informer[storage_v1.CSIDriver], capacities: Informer[storage_v1.CSIStorageCapacity]
    ) -> None:
        self._drivers, self._capacities = drivers, capacities

    def possible(self, storage: storage_v1.StorageClass | None, node: core_v1.Node) -> bool:
        """Return whether a StorageClass provisions volumes for the node's topology."""
        if storage is None or not storage.provisioner or storage.provisioner == NO_PROVISIONER:
            return False
        return matches_topology(storage.allowed_topologies, node.metadata.labels)

    def topologies(
        self, claim: core_v1.PersistentVolumeClaim, storage: storage_v1.StorageClass
    ) -> CapacityTopologies | None:
        """Return the topologies with enough capacity for a claim; None if the driver does not report capacity."""
        driver = self._drivers.get(storage.provisioner)
        wanted = quantity.value(claim.spec.resources.requests.get("storage", 0)) if claim.spec.resources else 0
        if driver is None or not driver.spec.storage_capacity or not wanted:
            return None
        return CapacityTopologies(
            capacity.node_topology
            for capacity in self._capacities.list()
            if capacity.storage_class_name == storage.metadata.name
            and capacity.node_topology is not None
            and _largest(capacity) >= wanted
        )


class CapacityTopologies:
    """Topologies with enough capacity, indexed by label so that a node is not compared with each topology."""

    def __init__(self, topologies: Iterable[meta_v1.LabelSelector]) -> None:
        self._values: dict[str, set[str]] = {}
        self._others: list[LabelSelector] = []
        for topology in topologies:
            if len(topology.match_labels) == 1 and not topology.match_expressions:
                ((key, value),) = topology.match_labels.items()
                self._values.setdefault(key, set()).add(value)
            else:
                self._others.append(from_label_selector(topology))

    def includes(self, node: core_v1.Node) -> bool:
        """Return whether a node is in one of the topologies."""
        labels = node.metadata.labels
        if any(labels.get(key) in values for key, values in self._values.items()):
            return True
        return any(other.matches(labels) for other in self._others)


def matches_topology(terms: Iterable[core_v1.TopologySelectorTerm], labels: dict[str, str]) -> bool:
    """Return whether a node's labels match one of a class's allowedTopologies, if it has any."""
    terms = list(terms)
    return not terms or any(
        all(labels.get(wanted.key) in wanted.values for wanted in term.match_label_expressions) for term in terms
    )


def _largest(capacity: storage_v1.CSIStorageCapacity) -> int:
    """Return the size of the largest volume that can be created, -1 if it is not reported."""
    largest = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
    return quantity.value(largest) if largest is not None else -1
