"""NodeVolumeLimits and VolumeZone: filters by the number of volumes on a node and by the zones of volumes.

CSINode contains the maximum number of volumes of each CSI driver. Volumes of the node's pods count, and volumes that are still
attached there (VolumeAttachments). A volume with zone or region labels goes only to nodes of that zone or region. Pods without
claims are not checked. Upstream: nodevolumelimits, volumezone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from control.scheduler.cluster import Cluster
from control.scheduler.framework import PreFilterState, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.plugins.volume_attachments import Attachments, Handles
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
_BY_NODE = "volumes attached to a node"
_TODAY = {ZONE_LABELS[2]: ZONE_LABELS[0], ZONE_LABELS[3]: ZONE_LABELS[1]}
"""Labels that replace the deprecated ones on nodes."""
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
        attachments: Informer[storage_v1.VolumeAttachment],
    ) -> None:
        self._nodes, self._volumes, self._attached = nodes, volumes, attachments
        attachments.add_index(_BY_NODE, lambda attachment: [attachment.spec.node_name])
        self.attachments = Attachments(claims, volumes, classes)

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> PreFilterState | None:
        """Tell the pod's CSI volumes by driver."""
        if not pod.claims:
            return None
        self.attachments.shed(cluster.nodes)
        wanted = self.attachments.of(pod)
        return _Limits(self, wanted) if wanted else None

    def attached(self, node: str) -> dict[str, str]:
        """Return the volumes that are attached to a node, or are being attached or detached, with their drivers."""
        found = {}
        for attachment in self._attached.by_index(_BY_NODE, node):
            source = attachment.spec.source
            volume = self._volumes.get((source.persistent_volume_name if source is not None else None) or "")
            if volume is not None and volume.spec.csi is not None:
                driver = attachment.spec.attacher
                found[f"{driver}/{volume.spec.csi.volume_handle}"] = driver
        return found

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
    def __init__(self, plugin: NodeVolumeLimits, wanted: Handles) -> None:
        self._plugin = plugin
        self._wanted: dict[str, set[str]] = {}
        for handle, driver in wanted.items():
            self._wanted.setdefault(driver, set()).add(handle)

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Count the node's volumes of each driver; one that is there already costs nothing."""
        limits = self._plugin.limits(node.name)
        wanted = self._wanted.keys() & limits.keys()
        if not wanted:
            return None
        there = self._plugin.attachments.on(node)
        if all(self._wanted[driver] <= there.uses.keys() for driver in wanted):
            return None
        without_pods = {h: driver for h, driver in self._plugin.attached(node.name).items() if h not in there.uses}
        attached = Counter(without_pods.values())
        for driver in wanted:
            new = len(self._wanted[driver] - there.uses.keys() - without_pods.keys())
            if new and there.drivers[driver] + attached[driver] + new > limits[driver]:
                return _FULL
        return None


class VolumeZone:
    name = "VolumeZone"
    weight = 0

    def __init__(self, claims: Claims, volumes: Volumes) -> None:
        self._claims, self._volumes = claims, volumes

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> PreFilterState | None:
        """Read the zones of the pod's bound volumes."""
        places: dict[str, frozenset[str]] = {}
        for key in pod.claims:
            claim = self._claims.get(key)
            volume = self._volumes.get(claim.spec.volume_name) if claim and claim.spec.volume_name else None
            if volume is not None:
                labels = volume.metadata.labels
                for label in ZONE_LABELS:
                    if labels.get(label):
                        zones = frozenset(labels[label].split("__"))
                        places[label] = places.get(label, zones) & zones
        return _Zones(places) if places else None


class _Zones(_Filter):
    def __init__(self, places: dict[str, frozenset[str]]) -> None:
        self._places = places

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Refuse nodes of other zones; a node that names none is of no zone at all."""
        if not any(label in node.labels for label in ZONE_LABELS):
            return None
        for key, values in self._places.items():
            found = node.labels.get(key) or node.labels.get(_TODAY.get(key, ""))
            if found not in values:
                return _ELSEWHERE
        return None
