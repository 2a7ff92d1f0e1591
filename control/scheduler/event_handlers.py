"""Event handlers from informers to the cache and queue: the effect of each change, and whose rejection it may undo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from control.scheduler import hints, metrics
from control.scheduler.cluster import Cluster
from control.scheduler.configuration import DEFAULT_NAME
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import SchedulingQueue
from kube.api import core_v1, resource_v1
from kube.informer import Change, Informer
from kube.object_names import key_of

ROOM = frozenset(
    {
        "NodeResourcesFit",
        "NodePorts",
        "InterPodAffinity",
        "PodTopologySpread",
        "VolumeRestrictions",
        "NodeVolumeLimits",
    }
)
"""Plugins that may think otherwise when a pod has left a node."""
COMPANY = frozenset({"InterPodAffinity", "PodTopologySpread"})
"""Plugins that may think otherwise when a pod has come to a node."""
LABELS = frozenset({"NodeAffinity", "InterPodAffinity", "PodTopologySpread"})
TAINTS = frozenset({"TaintToleration", "NodeUnschedulable"})
RESOURCES = frozenset({"NodeResourcesFit"})
STORAGE = frozenset({"VolumeBinding", "VolumeRestrictions", "NodeVolumeLimits", "VolumeZone"})
DEVICES = frozenset({"DynamicResources"})
ALL = ROOM | LABELS | TAINTS | STORAGE | DEVICES | frozenset({"NodeName"})


Gate = Callable[[core_v1.Pod], bool]
"""Says whether a waiting pod may be tried (PreEnqueue)."""


class EventHandlers:
    """Keeps a cluster cache and a queue in step with pods and nodes. `gates` has one for each scheduler name served."""

    def __init__(self, gates: Mapping[str, Gate], cluster: Cluster, queue: SchedulingQueue) -> None:
        self._gates, self._cluster, self._queue = gates, cluster, queue
        self._deferred: dict[str, core_v1.Pod] = {}
        """Pods that PreEnqueue keeps back."""
        self._rechecked: set[str] = set()
        """Namespaces whose held pods are to be checked again."""

    @property
    def held_back(self) -> int:
        """Number of pods that PreEnqueue keeps back."""
        return len(self._deferred)

    def follow(self, pods: Informer[core_v1.Pod], nodes: Informer[core_v1.Node]) -> None:
        nodes.subscribe(self.node_changed)
        pods.subscribe(self.pod_changed)

    def node_changed(self, change: Change[core_v1.Node]) -> None:
        """Process a change of a node."""
        if change.type == "DELETED":
            self._cluster.remove_node(change.key)
            self._queue.event(COMPANY, cause="NodeDelete")
            return
        self._cluster.set_node(change.new)
        hint = hints.of_node(self._cluster.nodes[change.key])
        if change.old is None:
            self._queue.event(ALL, hint, "NodeAdd")
            return
        old, new = change.old, change.new
        touched, cause = frozenset[str](), ""
        if old.spec.taints != new.spec.taints or old.spec.unschedulable != new.spec.unschedulable:
            touched, cause = touched | TAINTS, "NodeUpdateNodeTaint"
        if old.metadata.labels != new.metadata.labels:
            touched, cause = touched | LABELS | STORAGE | DEVICES, "NodeUpdateNodeLabel"
        if old.status.allocatable != new.status.allocatable:
            touched, cause = touched | RESOURCES, "NodeUpdateNodeAllocatable"
        if touched:
            self._queue.event(touched, hint, cause)

    def pod_changed(self, change: Change[core_v1.Pod]) -> None:
        """Process a change of a pod, bound or waiting."""
        pod = change.new
        if pod.spec.node_name:
            self._bound(change)
        elif (pod.spec.scheduler_name or DEFAULT_NAME) in self._gates:
            self._waiting(change)

    # -- devices ----------------------------------------------------------------------------------------------------
    def claim_changed(self, change: Change[resource_v1.ResourceClaim]) -> None:
        """Process a change of a claim: pods may have waited for it, or for the devices that it had."""
        namespace = change.new.metadata.namespace or ""
        if self._deferred and namespace not in self._rechecked:
            self._rechecked.add(namespace)
            self._queue.handlers_work.add(self._recheck(namespace))
        self._queue.event(DEVICES, hints.of_claim(change), f"ResourceClaim{metrics.ACTIONS[change.type]}")

    def _recheck(self, namespace: str) -> Iterator[None]:
        """Add the pods that were held for claims of a namespace to the queue, if they have these now; one at each step."""
        self._rechecked.discard(namespace)
        for key, pod in list(self._deferred.items()):
            if pod.spec.resource_claims and pod.metadata.namespace == namespace and self._deferred.get(key) is pod:
                if self._gates[pod.spec.scheduler_name or DEFAULT_NAME](pod):
                    del self._deferred[key]
                    self._queue.add(PodInfo(pod))
            yield

    def supply_changed(self) -> None:
        """Slices or classes of devices changed."""
        self._queue.event(DEVICES, cause="ResourceSliceUpdate")

    def resources_changed(self) -> None:
        """Devices stand for other extended resources than before."""
        self._cluster.forget_results()
        self._queue.event(RESOURCES | DEVICES, cause="DeviceClassUpdate")

    def _bound(self, change: Change[core_v1.Pod]) -> None:
        pod, key = change.new, change.key
        self._deferred.pop(key, None)
        self._queue.remove(key)
        self._cluster.nominations.withdraw(key)
        if change.type == "DELETED" or pod.status.phase in ("Succeeded", "Failed"):
            node = self._cluster.node_of(key)
            if node is not None:
                self._cluster.remove_pod(key)
                hint = hints.of_departure(PodInfo(pod), self._cluster.nodes.get(node))
                self._queue.event(ROOM, hint, "AssignedPodDelete")
            return
        old, before = change.old, self._cluster.requests_of(key)
        self._cluster.set_pod(pod)
        after = self._cluster.requests_of(key)
        if before is not after and any(after.get(name, 0) < value for name, value in before.items()):
            self._queue.event(RESOURCES, cause="AssignedPodUpdatePodScaleDown")
        if old is None or not old.spec.node_name:
            hint = hints.of_arrival(self._cluster.pod(key), self._cluster.namespace_labels)
            self._queue.event(COMPANY, hint, "AssignedPodAdd")
        elif (
            old.metadata.labels != pod.metadata.labels
            or old.metadata.deletion_timestamp != pod.metadata.deletion_timestamp
        ):
            self._queue.event(COMPANY, cause="AssignedPodUpdate")

    def _waiting(self, change: Change[core_v1.Pod]) -> None:
        pod, key = change.new, change.key
        self._deferred.pop(key, None)
        if change.type == "DELETED" or pod.metadata.deletion_timestamp is not None:
            self._queue.remove(key)
            self._cluster.nominations.withdraw(key)
            self._cluster.forget(key, pod.metadata.uid or "")
            return
        if pod.status.phase in ("Succeeded", "Failed"):
            self._queue.remove(key)
            return
        if self._cluster.is_assumed(key):
            return
        if not self._gates[pod.spec.scheduler_name or DEFAULT_NAME](pod):
            self._deferred[key] = pod
            return
        info, old = PodInfo(pod), change.old
        if pod.status.nominated_node_name:  # room is being made for it, be it by a scheduler before this one
            self._cluster.nominations.add(info, pod.status.nominated_node_name)
        elif old is not None and old.status.nominated_node_name:
            self._cluster.nominations.withdraw(key)
        if old is not None and (old.spec != pod.spec or old.metadata.labels != pod.metadata.labels):
            self._queue.update(info)
        else:
            self._queue.add(info)


def same_pod(info: PodInfo, pod: core_v1.Pod | None) -> bool:
    """True if the object is still the pod that the scheduler worked on."""
    return pod is not None and key_of(pod) == info.key and pod.metadata.uid == info.uid
