"""The scheduler's cache: nodes, the pods on them, and pods assumed to be there since they were placed.

A placed pod counts from the moment of the decision (assume), is confirmed when the watch shows it bound, and is taken back
(forget) where binding fails. Every change also moves the indexes that cluster plugins read.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from control.scheduler.counts import NodeCounts, PodIndexes
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.question import Question
from control.scheduler.term_sets import TermSet
from kube.api import core_v1
from kube.client import key_of
from kube.pod_requests import Amounts, held, is_infeasible

GIVEN_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""What a pod is given of its node's labels when it is bound (admission's PodTopologyLabels)."""


class Cluster:
    """Nodes and their pods. All methods are synchronous and called from one loop."""

    def __init__(self, namespace_labels: Callable[[str], Mapping[str, str]] = lambda name: {}) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self.order: list[NodeInfo] = []
        self.topology_version = 0
        """Rises when a node comes, goes, or changes labels or taints."""
        self.namespace_labels = namespace_labels
        self.image_nodes: dict[str, int] = {}
        self.label_keys: Counter[str] = Counter()
        """How many nodes have a label."""
        self.far: dict[TermSet, NodeCounts] = {}
        """Required anti-affinity of the pods that are there, which a new pod must respect."""
        self.scored: dict[TermSet, NodeCounts] = {}
        """Preferred affinity of the pods that are there, with the weights it has for a new pod."""
        self.near: dict[TermSet, NodeCounts] = {}
        """Required affinity of the pods that are there, which draws a new pod as much as a profile says."""
        self._claim_uses: dict[str, int] = {}
        """How many pods use a claim."""
        self._lifted: dict[str, PodInfo] = {}
        self._guests: dict[str, PodInfo] = {}
        """Pods that a what-if has taken off their nodes, or put onto one."""
        self.nominated: dict[str, dict[str, PodInfo]] = {}
        """Pods that are to go to a node as soon as their victims have left it."""
        self.preemption_start = 0
        """Where the next search for victims begins: one that compares too much goes on there."""
        self._nominations: dict[str, str] = {}
        self._indexes = PodIndexes(namespace_labels, self.label_keys.keys())
        self._pods: dict[str, tuple[PodInfo, str]] = {}
        self._assumed: set[str] = set()
        self._homeless: dict[str, dict[str, PodInfo]] = {}
        """Pods seen on nodes that are not known (yet)."""

    # -- nodes ------------------------------------------------------------------------------------------------------
    def set_node(self, node: core_v1.Node) -> None:
        """Add a node or store its new state."""
        name = node.metadata.name or ""
        info = self.nodes.get(name)
        if info is None:
            info = self.nodes[name] = NodeInfo(node)
            self.order.append(info)
            self._count_images(info, 1)
            self._count_labels((), info.labels)
            self.topology_version += 1
            for pod in self._homeless.pop(name, {}).values():
                self._place(pod, info)
            return
        if _same_node(info.node, node):
            info.node = node
            return
        old_labels, old_taints = info.labels, info.taints
        self._count_images(info, -1)
        info.set_node(node)
        self._count_images(info, 1)
        if old_labels != info.labels or old_taints != info.taints:
            self.topology_version += 1
        if old_labels != info.labels:
            self._count_labels(old_labels, info.labels)
            self._indexes.forget_domains()
            indexes = [self.far.values(), self.scored.values(), self.near.values()]
            for counts in itertools.chain.from_iterable(indexes):
                counts.forget_domains()

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods wait for it in case it comes back."""
        info = self.nodes.pop(name, None)
        if info is None:
            return
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

    def forget_verdicts(self) -> None:
        """Something changed that is no node's own but may change what plugins say of every node."""
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
        if found is not None and found[1] == node and _same(found[0], pod, assumed=key in self._assumed):
            self._assumed.discard(key)
            found[0].pod = pod
            return
        self.remove_pod(key)
        self._add(PodInfo(pod), node)

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

    def lift(self, pod: PodInfo, info: NodeInfo) -> None:
        """Take a pod off its node for a what-if; `put_back` has to follow before anything else runs."""
        info.remove(pod)
        self._move_indexes(pod, info, -1)
        if self._guests.pop(pod.key, None) is None:
            self._lifted[pod.key] = pod

    def put_back(self, pod: PodInfo, info: NodeInfo) -> None:
        """Put a pod onto a node: one that was lifted off, or for a what-if one that may come; `lift` then has to follow."""
        info.add(pod)
        self._move_indexes(pod, info, 1)
        if self._lifted.pop(pod.key, None) is None:
            self._guests[pod.key] = pod

    def claim_users(self, key: str) -> int:
        """Return how many pods use a claim."""
        lifted = sum(1 for pod in self._lifted.values() if key in pod.claim_set)
        guests = sum(1 for pod in self._guests.values() if key in pod.claim_set)
        return self._claim_uses.get(key, 0) - lifted + guests

    # -- nominated pods ---------------------------------------------------------------------------------------------
    def nominate(self, pod: PodInfo, node: str) -> None:
        """Keep room on a node for a pod that waits for its victims to go."""
        self.withdraw(pod.key)
        self._nominations[pod.key] = node
        self.nominated.setdefault(node, {})[pod.key] = pod

    def withdraw(self, key: str) -> None:
        """Forget a pod's nomination."""
        node = self._nominations.pop(key, None)
        if node is not None:
            self.nominated[node].pop(key, None)
            if not self.nominated[node]:
                del self.nominated[node]

    def _place(self, pod: PodInfo, info: NodeInfo) -> None:
        info.add(pod)
        self._use_claims(pod, 1)
        self._move_indexes(pod, info, 1)

    def _displace(self, pod: PodInfo, info: NodeInfo) -> None:
        info.remove(pod)
        self._use_claims(pod, -1)
        self._move_indexes(pod, info, -1)

    # -- indexes ----------------------------------------------------------------------------------------------------
    def _move_indexes(self, pod: PodInfo, info: NodeInfo, sign: int) -> None:
        self._indexes.count(pod, info, sign)
        if pod.pod.spec.affinity is None:
            return
        terms = pod.terms
        for found, counted in ((terms.far, self.far), (terms.near, self.near), (terms.scored, self.scored)):
            if found is not None:
                _count_terms(counted, found, info, sign)

    def _use_claims(self, pod: PodInfo, sign: int) -> None:
        for key in pod.claims if pod.pod.spec.volumes else ():
            number = self._claim_uses.get(key, 0) + sign
            if number > 0:
                self._claim_uses[key] = number
            else:
                self._claim_uses.pop(key, None)

    def comparison(self, question: Question) -> Callable[[], Awaitable[None]] | None:
        """Return what is to be done before the pods that fit a question are counted; None if nothing is."""
        return self._indexes.comparison(question, self.nodes.values())

    def count(self, question: Question) -> NodeCounts:
        """Return how many pods fit a question, by node and domain."""
        return self._indexes.matching(question, self.nodes.values())

    def count_all(self, terms: TermSet) -> NodeCounts:
        """Return how many pods all of the terms match."""
        return self._indexes.all_matching(terms, self.nodes.values())

    def weigh(self, terms: TermSet) -> Mapping[str, NodeCounts]:
        """Return by topology key the sum of the terms' weights, over the pods that they match."""
        return self._indexes.weighed(terms, self.nodes.values())

    def points(self, terms: TermSet, pod: PodInfo) -> Sequence[tuple[str, int]]:
        """Return by topology key the sum of the weights of the terms that match a pod."""
        return terms.points(pod.namespace, pod.labels, self.namespace_labels, self.label_keys.keys())


def _count_terms(counted: dict[TermSet, NodeCounts], terms: TermSet, info: NodeInfo, sign: int) -> None:
    counts = counted.get(terms)
    if counts is None:
        counts = counted[terms] = NodeCounts()
    counts.add(info, sign)
    if not counts.per_node:
        del counted[terms]


def _same(known: PodInfo, new: core_v1.Pod, *, assumed: bool) -> bool:
    """True where two states of a pod count alike; an assumed one differs from its bound self in the node's name only."""
    old = known.pod
    if known.uid != (new.metadata.uid or "") or known.labels != new.metadata.labels:
        return False
    if (old.metadata.deletion_timestamp is None) != (new.metadata.deletion_timestamp is None):
        return False
    if assumed:
        return True
    if old.spec != new.spec or held(old) != held(new):
        return False
    return is_infeasible(old) == is_infeasible(new)


def _same_node(old: core_v1.Node, new: core_v1.Node) -> bool:
    """True where a node changed in nothing that placing pods depends on (most updates are heartbeats)."""
    return (
        old.metadata.labels == new.metadata.labels
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
        and old.status.images == new.status.images
    )
