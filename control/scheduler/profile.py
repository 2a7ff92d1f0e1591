"""The default profile: upstream's default plugins in their order, with their weights."""

from __future__ import annotations

from control.scheduler.cluster import Cluster
from control.scheduler.framework import Profile
from control.scheduler.plugins.balanced_allocation import BalancedAllocation
from control.scheduler.plugins.image_locality import ImageLocality
from control.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from control.scheduler.plugins.node_affinity import NodeAffinity
from control.scheduler.plugins.node_name import NodeName
from control.scheduler.plugins.node_ports import NodePorts
from control.scheduler.plugins.node_resources_fit import NodeResourcesFit
from control.scheduler.plugins.node_unschedulable import NodeUnschedulable
from control.scheduler.plugins.pod_topology_spread import PodTopologySpread
from control.scheduler.plugins.taint_toleration import TaintToleration
from control.scheduler.plugins.volume_binding import VolumeBinding


def default_profile(
    cluster: Cluster, affinity: InterPodAffinity, spread: PodTopologySpread, volumes: VolumeBinding | None = None
) -> Profile:
    """Return the plugins of "default-scheduler"."""
    taints, nodes, fit = TaintToleration(), NodeAffinity(), NodeResourcesFit()
    return Profile(
        filters=(NodeUnschedulable(), NodeName(), taints, nodes, NodePorts(), fit),
        scores=(taints, nodes, fit, BalancedAllocation(), ImageLocality(cluster)),
        cluster=(*([volumes] if volumes is not None else []), spread, affinity),
    )
