"""Queueing hints: decide if a change could make a plugin accept a pod that it rejected.

Without them every node that comes and every pod that goes would wake all pods that wait, in a large cluster thousands for
nothing. A hint may say yes too often, never no wrongly. Upstream: QueueingHintFn of each plugin.

Hints compute nothing for large waiting pods, nor for those whose computed results were dropped: these are tried.
"""

from __future__ import annotations

from control.event_loop.weight import LARGE
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.plugins.node_unschedulable import NodeUnschedulable
from control.scheduler.plugins.taint_toleration import TaintToleration
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import Hint
from control.scheduler.term_sets import LabelsOf
from kube.api import resource_v1
from kube.informer import Change

_TAINTS, _CORDON = TaintToleration(), NodeUnschedulable()


def of_node(node: NodeInfo) -> Hint:
    """Return the hint of a node that is new or has changed."""

    def helps(plugin: str, pod: PodInfo) -> bool:
        if pod.forgotten or pod.size >= LARGE:
            return True
        if plugin == "NodeResourcesFit":
            # Extended resources are not compared: devices may back them on this node.
            wanted = pod.native_requests.items()
            return node.pod_capacity > 0 and all(node.allocatable.get(name, 0) >= value for name, value in wanted)
        if plugin == "NodeAffinity":
            return pod.selection.matches(node.node)
        if plugin == "TaintToleration":
            return _TAINTS.filter(pod, node) is None
        if plugin == "NodeUnschedulable":
            return _CORDON.filter(pod, node) is None
        if plugin == "NodeName":
            return pod.pod.spec.node_name in (None, "", node.name)
        return True

    return helps


def of_departure(gone: PodInfo, node: NodeInfo | None) -> Hint:
    """Return the hint of a pod that has left its node."""
    was_full = node is None or len(node.pods) + 1 >= node.pod_capacity

    def helps(plugin: str, pod: PodInfo) -> bool:
        if pod.forgotten or pod.size >= LARGE:
            return True
        if plugin == "NodeResourcesFit":
            return was_full or not gone.asked.isdisjoint(pod.asked)
        if plugin == "NodePorts":
            return not gone.ports.keys().isdisjoint(pod.ports.keys())
        if plugin == "VolumeRestrictions":
            return not gone.claim_set.isdisjoint(pod.claim_set)
        if plugin == "NodeVolumeLimits":
            return bool(gone.claims)
        return True

    return helps


def of_arrival(new: PodInfo, labels_of: LabelsOf) -> Hint:
    """Return the hint of a pod that has come to a node: a pod that was to be near it, or is spread with it, may be helped."""

    def helps(plugin: str, pod: PodInfo) -> bool:
        if plugin == "InterPodAffinity":
            near = pod.affinity_sample
            return near is not None and near.may_match(new.namespace, new.labels, labels_of)
        if plugin == "PodTopologySpread":
            return pod.namespace == new.namespace
        return True

    return helps


def of_claim(change: Change[resource_v1.ResourceClaim]) -> Hint:
    """Return the hint of a claim: devices that it gave back may help any pod, anything else only a pod that uses it."""
    new, old = change.new, change.old
    before = old.status.allocation if old is not None else new.status.allocation
    freed = before is not None and (change.type == "DELETED" or new.status.allocation is None)
    same = old is not None and old.status == new.status and change.type != "DELETED"

    def helps(plugin: str, pod: PodInfo) -> bool:
        return freed or (not same and _uses(pod, new))

    return helps


def _uses(pod: PodInfo, claim: resource_v1.ResourceClaim) -> bool:
    if pod.namespace != claim.metadata.namespace:
        return False
    if any(ref.uid == pod.uid for ref in claim.metadata.owner_references):
        return True
    name = claim.metadata.name
    return any(entry.resource_claim_name == name for entry in pod.pod.spec.resource_claims) or any(
        status.resource_claim_name == name for status in pod.pod.status.resource_claim_statuses
    )
