"""The scheduler's cache: nodes, the pods on them, and pods assumed to be there since they were placed.

A placed pod counts from the moment of the decision (assume), is confirmed when the watch shows it bound, and is taken back
(forget) where binding fails. Every change also moves the indexes that cluster plugins read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from control.scheduler.existing_affinity import ExistingAffinity
from control.scheduler.node_counts import NodeCounts
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.nominations import Nominations
from control.scheduler.pod_counts import PodIndexes
from control.scheduler.pod_selection import PodSelection
from control.scheduler.podinfo import PodInfo
from control.scheduler.relevant_changes import same_node, same_pod
from control.scheduler.term_sets import TermSet
from kube.api import core_v1
from kube.object_names import key_of
from kube.pod_requests import Amounts

GIVEN_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""Labels of its node that a pod gets when it is bound (admission's PodTopologyLabels)."""


class Cluster:
    """Nodes and their pods. All methods are synchronous and called from one loop."""

    def __init__(self, namespace_labels: Callable[[str], Mapping[str, str]] = lambda name: {}) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self.order: list[NodeInfo] = []
        self.topology_version = 0
        """Rises when a node comes, goes, or changes labels or taints."""
        self.changes = 0
        """Rises when a node changes, or a pod is added to one or removed, except in dry runs."""
        self.searching = asyncio.Lock()
        """Held during each slice of a search for victims, so that one slice runs in an iteration of the event loop."""
        self.namespace_labels = namespace_labels
        self.image_nodes: dict[str, int] = {}
        self.label_keys: Counter[str] = Counter()
        """Number of nodes that have a label, by its key."""
        self.existing_affinity = ExistingAffinity()
        self.nominations = Nominations()
        self._claim_uses: dict[str, int] = {}
        """Number of pods that use a claim, by the claim's key."""
        self._removed_for_dry_run: dict[str, PodInfo] = {}
        self._added_for_dry_run: dict[str, PodInfo] = {}
        """Pods that a dry run has removed from their nodes, or added to one."""
        self.preemption_start = 0
        """Index of the node at which the next search for victims begins; a search that exceeds its limit continues there."""
        self._indexes = PodIndexes(namespace_labels, self.label_keys.keys())
        self._pods: dict[str, tuple[PodInfo, str]] = {}
        self._assumed: set[str] = set()
        self._homeless: dict[str, dict[str, PodInfo]] = {}
        """Pods seen on nodes that are not known (yet)."""

    def sizes(self) -> dict[str, int]:
        """Return the numbers of nodes, of pods on them, and of those that are assumed to be there."""
        return {"nodes": len(self.nodes), "pods": len(self._pods), "assumed_pods": len(self._assumed)}

    # -- nodes ------------------------------------------------------------------------------------------------------
    def set_node(self, node: core_v1.Node) -> None:
        """Add a node or store its new state."""
        name = node.metadata.name or ""
        info = self.nodes.get(name)
        if info is None:
            self.changes += 1
            info = self.nodes[name] = NodeInfo(node)
            self.order.append(info)
            self._count_images(info, 1)
            self._count_labels((), info.labels)
            self.topology_version += 1
            for pod in self._homeless.pop(name, {}).values():
                self._place(pod, info)
            return
        if same_node(info.node, node):
            info.node = node
            return
        self.changes += 1
        old_labels, old_taints = info.labels, info.taints
        self._count_images(info, -1)
        info.set_node(node)
        self._count_images(info, 1)
        if old_labels != info.labels or old_taints != info.taints:
            self.topology_version += 1
        if old_labels != info.labels:
            self._count_labels(old_labels, info.labels)
            self._indexes.forget_domains()
            self.existing_affinity.forget_domains()

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods wait for it in case it comes back."""
        info = self.nodes.pop(name, None)
        if info is None:
            return
        self.changes += 1
        for pod in list(info.pods.values()):
            self._displace(pod, info)
            self._homeless.setdefault(name, {})[pod.key] = pod
        self.order.remove(info)
        self._indexes.node_gone(name)
        self._count_images(info, -1)
        self._count_labels(info.labels, ())
        self.topology_version += 1

    def _count_labels(self, old: Iterable[str], new: Iterable[str]) -> None:
        """Follow which labels nodes have: terms of others are left out of what is counted."""
        before = len(self.label_keys)
        self.label_keys.update(list(new))
        more = len(self.label_keys) > before
        for key in old:
            self.label_keys[key] -= 1
            if not self.label_keys[key]:
                del self.label_keys[key]
        if more:
            self._indexes.forget()

    def namespaces_changed(self) -> None:
        """The labels of namespaces are others than before."""
        self._indexes.namespaces_changed()

    def forget_results(self) -> None:
        """A change outside of the nodes may change the plugins' results for every node."""
        for info in self.order:
            info.touch()

    def _count_images(self, info: NodeInfo, sign: int) -> None:
        for name in info.images:
            number = self.image_nodes.get(name, 0) + sign
            if number:
                self.image_nodes[name] = number
            else:
                self.image_nodes.pop(name, None)

    # -- pods -------------------------------------------------------------------------------------------------------
    def node_of(self, key: str) -> str | None:
        found = self._pods.get(key)
        return found[1] if found else None

    def pod(self, key: str) -> PodInfo:
        """Return a pod that is on a node; raises KeyError."""
        return self._pods[key][0]

    def requests_of(self, key: str) -> Amounts:
        """Return what a pod counts for; nothing where it is not known."""
        found = self._pods.get(key)
        return found[0].requests if found else {}

    def is_assumed(self, key: str) -> bool:
        return key in self._assumed

    def assume(self, pod: PodInfo, node: str) -> None:
        """Count a pod on a node before it is bound."""
        self._assumed.add(pod.key)
        found = self.nodes.get(node)
        given = {key: found.labels[key] for key in GIVEN_LABELS if key in found.labels} if found is not None else {}
        if given:
            pod.labels = {**pod.labels, **given}
        self._add(pod, node)

    def forget(self, key: str, uid: str) -> None:
        """Take back an assumed pod; another one of the same name stays."""
        found = self._pods.get(key)
        if key in self._assumed and found is not None and found[0].uid == uid:
            self.remove_pod(key)
            found[0].labels = found[0].pod.metadata.labels

    def set_pod(self, pod: core_v1.Pod) -> None:
        """Store the state of a pod that is bound to a node; what does not matter here changes nothing."""
        key, node = key_of(pod), pod.spec.node_name or ""
        found = self._pods.get(key)
        if found is not None and found[1] == node and same_pod(found[0], pod, assumed=key in self._assumed):
            self._assumed.discard(key)
            found[0].pod = pod
            return
        new = PodInfo(pod)
        if found is not None:
            new.take_terms(found[0])
        self.remove_pod(key)
        self._add(new, node)

    def remove_pod(self, key: str) -> None:
        """Stop counting a pod that is gone or has finished."""
        self._assumed.discard(key)
        found = self._pods.pop(key, None)
        if found is None:
            return
        pod, node = found
        info = self.nodes.get(node)
        if info is not None:
            self._displace(pod, info)
        else:
            self._homeless.get(node, {}).pop(key, None)

    def _add(self, pod: PodInfo, node: str) -> None:
        self._pods[pod.key] = (pod, node)
        info = self.nodes.get(node)
        if info is not None:
            self._place(pod, info)
        else:
            self._homeless.setdefault(node, {})[pod.key] = pod

    def remove_for_dry_run(self, pod: PodInfo, info: NodeInfo) -> None:
        """Remove a pod from its node for a dry run; `add_for_dry_run` has to follow before anything else runs."""
        info.remove(pod)
        self._indexes.count_for_dry_run(pod, info, -1)
        self.existing_affinity.count(pod, info, -1)
        if self._added_for_dry_run.pop(pod.key, None) is None:
            self._removed_for_dry_run[pod.key] = pod
        self._end_dry_run()

    def add_for_dry_run(self, pod: PodInfo, info: NodeInfo) -> None:
        """Add a pod to a node for a dry run: a nominated one, or again one that was removed.

        For the former `remove_for_dry_run` has to follow before anything else runs.
        """
        info.add(pod)
        self._indexes.count_for_dry_run(pod, info, 1)
        self.existing_affinity.count(pod, info, 1)
        if self._removed_for_dry_run.pop(pod.key, None) is None:
            self._added_for_dry_run[pod.key] = pod
        self._end_dry_run()

    def _end_dry_run(self) -> None:
        if not self._removed_for_dry_run and not self._added_for_dry_run:
            self._indexes.end_dry_run()

    def claim_users(self, key: str) -> int:
        """Return how many pods use a claim."""
        removed = sum(1 for pod in self._removed_for_dry_run.values() if key in pod.claim_set)
        added = sum(1 for pod in self._added_for_dry_run.values() if key in pod.claim_set)
        return self._claim_uses.get(key, 0) - removed + added

    def _place(self, pod: PodInfo, info: NodeInfo) -> None:
        self.changes += 1
        info.add(pod)
        self._use_claims(pod, 1)
        self._move_indexes(pod, info, 1)

    def _displace(self, pod: PodInfo, info: NodeInfo) -> None:
        self.changes += 1
        info.remove(pod)
        self._use_claims(pod, -1)
        self._move_indexes(pod, info, -1)

    # -- indexes ----------------------------------------------------------------------------------------------------
    def _move_indexes(self, pod: PodInfo, info: NodeInfo, sign: int) -> None:
        self._indexes.count(pod, info, sign)
        self.existing_affinity.count(pod, info, sign)

    def _use_claims(self, pod: PodInfo, sign: int) -> None:
        for key in pod.claims if pod.pod.spec.volumes else ():
            number = self._claim_uses.get(key, 0) + sign
            if number > 0:
                self._claim_uses[key] = number
            else:
                self._claim_uses.pop(key, None)

    def count(self, selection: PodSelection, incoming: PodInfo | None = None) -> NodeCounts:
        """Return how many pods fit a selection, by node and domain.

        Raises Unfinished, as `count_all` and `weigh`, if all pods are to be compared for the pod that `incoming` is.
        """
        return self._indexes.matching(selection, self.nodes.values(), incoming)

    def count_all(self, terms: TermSet, incoming: PodInfo | None = None) -> NodeCounts:
        """Return how many pods all of the terms match."""
        return self._indexes.all_matching(terms, self.nodes.values(), incoming)

    def weigh(self, terms: TermSet, incoming: PodInfo | None = None) -> Mapping[str, NodeCounts]:
        """Return by topology key the sum of the terms' weights, over the pods that they match."""
        return self._indexes.weighed(terms, self.nodes.values(), incoming)

    def points(self, terms: TermSet, pod: PodInfo) -> Sequence[tuple[str, int]]:
        """Return by topology key the sum of the weights of the terms that match a pod."""
        return terms.points(pod.namespace, pod.labels, self.namespace_labels, self.label_keys.keys())
