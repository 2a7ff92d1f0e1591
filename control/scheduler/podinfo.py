"""A pod as the scheduler sees it: everything that placing it needs, worked out once.

`signature` is equal for pods that every node-local filter and score treats alike (the replicas of one template), so that
their verdicts on a node can be shared.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from control.scheduler import disks
from control.scheduler.node_selection import NodeSelection
from control.scheduler.spreads import Spreads, spreads_of
from control.scheduler.term_sets import AffinityTerm, TermSet, term_set
from control.scheduler.toleration_set import Tolerations
from kube import node_affinity
from kube.api import core_v1
from kube.client import key_of
from kube.host_ports import EVERY_ADDRESS, Ports, by_number
from kube.pod_requests import Amounts, pod_requests
from kube.selectors import from_label_selector
from kube.volume_binding import claim_names

UNSET = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""What a container without requests counts for in scores (upstream: DefaultMilliCPURequest, DefaultMemoryRequest)."""


@dataclass(frozen=True, slots=True)
class PodTerms:
    """The sets of a pod's affinity terms: `near` and `far` are required, of what is preferred `scored` has the weights."""

    near: TermSet | None = None
    far: TermSet | None = None
    scored: TermSet | None = None


class PodInfo:
    """One pod, immutable but for `cycle_state`; `node` is where it runs or is assumed to run."""

    def __init__(self, pod: core_v1.Pod) -> None:
        self.pod = pod
        self.key = key_of(pod)
        self.uid = pod.metadata.uid or ""
        self.namespace = pod.metadata.namespace or ""
        self.labels = pod.metadata.labels
        self.priority = pod.spec.priority or 0
        self.requests: Amounts = pod_requests(pod)
        self.cpu = self.requests.get("cpu", 0)
        self.memory = self.requests.get("memory", 0)
        self.others = {k: v for k, v in self.requests.items() if v and k not in ("cpu", "memory")}
        self.cycle_state: dict[str, object] = {}
        """What plugins have worked out in the attempt that is under way, by their names."""
        asked = pod_requests(pod, UNSET)
        self.score_cpu, self.score_memory = asked.get("cpu", 0), asked.get("memory", 0)

    @cached_property
    def size(self) -> int:
        """Bytes of the pod's spec and labels."""
        return len(msgspec.json.encode((self.pod.spec, self.labels)))

    def follow(self, pod: core_v1.Pod) -> bool:
        """Store a new state of the pod if all that was worked out still holds; False where it does not."""
        if pod.spec != self.pod.spec or pod.metadata.labels != self.labels:
            return False
        self.pod = pod
        return True

    def prepare(self) -> None:
        """Work out what placing the pod needs, all at once; another thread may do it."""
        for terms in (self.terms.near, self.terms.far, self.terms.scored):
            if terms is not None:
                terms.prepare()
        self.selection.prepare()
        for name in ("tolerations", "ports", "claims", "disks", "images", "named_nodes", "signature", "spreads"):
            getattr(self, name)
        for spread in (*self.spreads.hard, *self.spreads.soft):
            spread.question(self.namespace)

    @cached_property
    def ports(self) -> Ports:
        """The addresses of the node on which the pod takes each (protocol, port)."""
        containers = self.pod.spec.containers + [
            c for c in self.pod.spec.init_containers if c.restart_policy == "Always"
        ]
        return by_number(
            (port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
            for container in containers
            for port in container.ports
            if port.host_port
        )

    @cached_property
    def claims(self) -> tuple[str, ...]:
        """The keys of the claims that the pod uses, those of its ephemeral volumes among them."""
        return tuple(f"{self.namespace}/{name}" for name in dict.fromkeys(claim_names(self.pod)))

    @cached_property
    def disks(self) -> disks.Uses:
        return disks.uses(disks.disks(self.pod))

    @cached_property
    def claim_set(self) -> frozenset[str]:
        return frozenset(self.claims)

    @cached_property
    def asked(self) -> frozenset[str]:
        """The resources that the pod takes something of."""
        return frozenset(name for name, value in self.requests.items() if value)

    @cached_property
    def native_requests(self) -> Amounts:
        """The requests for what is no extended resource."""
        return {name: value for name, value in self.requests.items() if "/" not in name}

    @cached_property
    def images(self) -> Counter[str]:
        """Number of containers and volumes with an image."""
        containers = self.pod.spec.init_containers + self.pod.spec.containers
        names = [container.image or "" for container in containers]
        names += [v.image.reference or "" for v in self.pod.spec.volumes if v.image is not None]
        return Counter(normalized_image(name) for name in names)

    @cached_property
    def terms(self) -> PodTerms:
        affinity = self.pod.spec.affinity
        if affinity is None:
            return NO_TERMS
        near, far = affinity.pod_affinity, affinity.pod_anti_affinity
        return PodTerms(
            term_set(self._required(near)),
            term_set(self._required(far)),
            term_set(self._preferred(near, 1) + self._preferred(far, -1)),
        )

    def _required(self, found: core_v1.PodAffinity | core_v1.PodAntiAffinity | None) -> list[tuple[AffinityTerm, int]]:
        terms = found.required_during_scheduling_ignored_during_execution if found is not None else ()
        return [(self._term(term), 1) for term in terms]

    def _preferred(
        self, found: core_v1.PodAffinity | core_v1.PodAntiAffinity | None, sign: int
    ) -> list[tuple[AffinityTerm, int]]:
        terms = found.preferred_during_scheduling_ignored_during_execution if found is not None else ()
        return [(self._term(t.pod_affinity_term), sign * t.weight) for t in terms if t.pod_affinity_term is not None]

    def _term(self, term: core_v1.PodAffinityTerm) -> AffinityTerm:
        namespaces: frozenset[str] | None = frozenset(term.namespaces)
        by_label = from_label_selector(term.namespace_selector) if term.namespace_selector is not None else None
        if by_label is None and not namespaces:
            namespaces = frozenset({self.namespace})
        elif by_label is not None and by_label.empty:
            namespaces, by_label = None, None
        return AffinityTerm(namespaces, by_label, from_label_selector(term.label_selector), term.topology_key)

    @cached_property
    def spreads(self) -> Spreads:
        return spreads_of(self.pod.spec.topology_spread_constraints, self.labels)

    @cached_property
    def selection(self) -> NodeSelection:
        return NodeSelection(self.pod.spec)

    @cached_property
    def tolerations(self) -> Tolerations:
        return Tolerations(self.pod.spec.tolerations)

    @cached_property
    def named_nodes(self) -> set[str] | None:
        """The only nodes that the pod's affinity allows by name."""
        return node_affinity.named_nodes(self.pod.spec)

    @cached_property
    def signature(self) -> bytes:
        spec = self.pod.spec
        return msgspec.json.encode(
            (
                spec.node_name,
                spec.node_selector,
                spec.affinity.node_affinity if spec.affinity else None,
                spec.tolerations,
                self.requests,
                self.score_cpu,
                self.score_memory,
                sorted((*port, *sorted(addresses)) for port, addresses in self.ports.items()),
                sorted(self.images.items()),
            )
        )


NO_TERMS = PodTerms()


@dataclass(slots=True)
class QueuedPod:
    """A pod that waits to be scheduled, with its history of tries. Times are seconds of the monotonic clock."""

    info: PodInfo
    added: float
    attempts: int = 0
    last_try: float = 0.0
    error: bool = False
    """The last try failed for another reason than lack of a fitting node."""
    rejected_by: frozenset[str] = field(default_factory=frozenset)

    @property
    def key(self) -> str:
        return self.info.key


def normalized_image(name: str) -> str:
    """Return an image name with its tag, `:latest` where it has none (and no digest)."""
    return name if ":" in name.rsplit("/", 1)[-1] or "@" in name else f"{name}:latest"
