"""Changes of pods and nodes that scheduling depends on. All others, most of them heartbeats, leave the cache as it is."""

from __future__ import annotations

from control.scheduler.podinfo import PodInfo
from kube.api import core_v1
from kube.pod_requests import allocated_resources, is_infeasible


def same_pod(known: PodInfo, new: core_v1.Pod, *, assumed: bool) -> bool:
    """True if two states of a pod count alike; an assumed one differs from its bound self in the node's name only."""
    old = known.pod
    if known.uid != (new.metadata.uid or "") or known.labels != new.metadata.labels:
        return False
    if (old.metadata.deletion_timestamp is None) != (new.metadata.deletion_timestamp is None):
        return False
    if assumed:
        return True
    if old.spec != new.spec or allocated_resources(old) != allocated_resources(new):
        return False
    return is_infeasible(old) == is_infeasible(new)


def same_node(old: core_v1.Node, new: core_v1.Node) -> bool:
    """True if a node changed in nothing that placing pods depends on (most updates are heartbeats)."""
    return (
        old.metadata.labels == new.metadata.labels
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and old.status.images == new.status.images
    )
