"""VolumeRestrictions: volumes that can be used once.

A claim with ReadWriteOncePod is one pod's at a time; disks that a pod names itself (GCE, AWS, iSCSI, RBD) can be on a node
twice only where both uses are read-only. Upstream: the plugin volumerestrictions.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.scheduler.cluster import Cluster
from control.scheduler.disks import Uses
from control.scheduler.framework import PreFilterState, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1
from kube.informer import Informer

NAME = "VolumeRestrictions"
ONCE_A_POD = "ReadWriteOncePod"
_IN_USE = Rejection(
    NAME, ("node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",)
)
_CONFLICT = Rejection(NAME, ("node(s) had no available disk",))


class VolumeRestrictions:
    name = NAME
    weight = 0

    def __init__(self, claims: Informer[core_v1.PersistentVolumeClaim]) -> None:
        self._claims = claims

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> PreFilterState | None:
        """Find what the pod wants to itself."""
        if not pod.pod.spec.volumes:
            return None
        alone = []
        for key in pod.claims:
            claim = self._claims.get(key)
            if claim is not None and ONCE_A_POD in claim.spec.access_modes and cluster.claim_users(key):
                alone.append(key)
        wanted = pod.disks
        return _Check(cluster, alone, wanted) if alone or wanted else None


class _Check:
    def __init__(self, cluster: Cluster, alone: Sequence[str], wanted: Uses) -> None:
        self._cluster, self._alone, self._wanted = cluster, alone, wanted

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Refuse every node while a claim is another pod's, and nodes that have a disk in use."""
        if self._wanted:
            for pod in node.pods.values():
                if pod.pod.spec.volumes and _clash(self._wanted, pod.disks):
                    return _CONFLICT
        # Whatever node it is: a claim is taken until its pod has gone.
        return _IN_USE if any(self._cluster.claim_users(key) for key in self._alone) else None

    def score(self, nodes: Sequence[NodeInfo]) -> list[int] | None:
        return None


def _clash(some: Uses, others: Uses) -> bool:
    return any(not (some[key] and others[key]) for key in some.keys() & others.keys())
