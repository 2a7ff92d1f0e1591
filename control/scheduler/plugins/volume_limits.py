"""NodeVolumeLimits and VolumeZone: what volumes allow besides where they are bound.

A CSI driver says on each node's CSINode how many of its volumes the node can hold; a volume with zone or region labels goes
only to nodes of that zone or region. Only pods with claims cost anything here. Upstream: nodevolumelimits, volumezone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from control.scheduler.cluster import Cluster
from control.scheduler.framework import Constraint, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, storage_v1
from kube.informer import Informer

Claims = Informer[core_v1.PersistentVolumeClaim]
Volumes = Informer[core_v1.PersistentVolume]
ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_TODAY = {ZONE_LABELS[2]: ZONE_LABELS[0], ZONE_LABELS[3]: ZONE_LABELS[1]}
"""What nodes have in place of the labels of old."""
_FULL = Rejection("NodeVolumeLimits", ("node(s) exceed max volume count",))
_ELSEWHERE = Rejection("VolumeZone", ("node(s) had no available volume zone",), unresolvable=True)


class _Filter:
    """A constraint that only filters."""

    def score(self, nodes: Sequence[NodeInfo]) -> list[int] | None:
        return None


class NodeVolumeLimits:
    name = "NodeVolumeLimits"
    weight = 0

    def __init__(
        self,
        claims: Claims,
        volumes: Volumes,
        classes: Informer[storage_v1.StorageClass],
        nodes: Informer[storage_v1.CSINode],
    ) -> None:
        self._claims, self._volumes, self._classes, self._nodes = claims, volumes, classes, nodes

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> Constraint | None:
        """Tell the pod's CSI volumes by driver."""
        wanted = dict(self.handles(pod))
        return _Limits(self, wanted) if wanted else None

    def handles(self, pod: PodInfo) -> Iterator[tuple[str, str]]:
        """Yield (volume, driver) of each CSI volume that a pod has or will have."""
        for key in pod.claims:
            claim = self._claims.get(key)
            if claim is None:
                continue
            volume = self._volumes.get(claim.spec.volume_name or "") if claim.spec.volume_name else None
            if volume is not None:
                if volume.spec.csi is not None:
                    yield f"{volume.spec.csi.driver}/{volume.spec.csi.volume_handle}", volume.spec.csi.driver
                continue
            found = self._classes.get(claim.spec.storage_class_name or "")
            if found is not None:
                yield f"{found.provisioner}/{key}", found.provisioner

    def limits(self, node: str) -> dict[str, int]:
        """Return how many volumes of each driver a node can hold."""
        found = self._nodes.get(node)
        drivers = found.spec.drivers if found is not None else []
        return {
            driver.name: driver.allocatable.count
            for driver in drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }


class _Limits(_Filter):
    def __init__(self, plugin: NodeVolumeLimits, wanted: dict[str, str]) -> None:
        self._plugin, self._wanted = plugin, wanted

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Count the node's volumes of each driver; one that is there already costs nothing."""
        limits = self._plugin.limits(node.name)
        if not limits:
            return None
        there: dict[str, str] = {}
        for pod in node.pods.values():
            if pod.claims:
                there.update(self._plugin.handles(pod))
        after = {**there, **self._wanted}
        for driver, limit in limits.items():
            new = sum(1 for handle, d in self._wanted.items() if d == driver and handle not in there)
            if new and sum(1 for d in after.values() if d == driver) > limit:
                return _FULL
        return None


class VolumeZone:
    name = "VolumeZone"
    weight = 0

    def __init__(self, claims: Claims, volumes: Volumes) -> None:
        self._claims, self._volumes = claims, volumes

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> Constraint | None:
        """Read the zones of the pod's bound volumes."""
        places: list[tuple[str, frozenset[str]]] = []
        for key in pod.claims:
            claim = self._claims.get(key)
            volume = self._volumes.get(claim.spec.volume_name) if claim and claim.spec.volume_name else None
            if volume is not None:
                labels = volume.metadata.labels
                places += [(key, frozenset(labels[key].split("__"))) for key in ZONE_LABELS if labels.get(key)]
        return _Zones(places) if places else None


class _Zones(_Filter):
    def __init__(self, places: list[tuple[str, frozenset[str]]]) -> None:
        self._places = places

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Refuse nodes of other zones; a node that names none is of no zone at all."""
        if not any(label in node.labels for label in ZONE_LABELS):
            return None
        for key, values in self._places:
            found = node.labels.get(key) or node.labels.get(_TODAY.get(key, ""))
            if found not in values:
                return _ELSEWHERE
        return None
