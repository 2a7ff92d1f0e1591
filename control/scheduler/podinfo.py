"""A pod as the scheduler sees it: everything that placing it needs, worked out once.

`signature` is equal for pods that every node-local filter and score treats alike (the replicas of one template), so that
their verdicts on a node can be shared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from kube import node_affinity
from kube.api import core_v1
from kube.client import key_of
from kube.host_ports import EVERY_ADDRESS, HostPort
from kube.pod_requests import Amounts, pod_requests
from kube.selectors import LabelSelector, from_label_selector
from kube.volume_binding import claim_names

UNSET = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""What a container without requests counts for in scores (upstream: DefaultMilliCPURequest, DefaultMemoryRequest)."""


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A pod affinity term: pods of these namespaces (None: all) with these labels, in one domain of `key`."""

    namespaces: frozenset[str] | None
    namespace_selector: LabelSelector | None
    selector: LabelSelector
    key: str


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    required: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[AffinityTerm, int], ...] = ()


class PodInfo:
    """One pod, immutable; `node` is where it runs or is assumed to run."""

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
        asked = pod_requests(pod, UNSET)
        self.score_cpu, self.score_memory = asked.get("cpu", 0), asked.get("memory", 0)

    @cached_property
    def ports(self) -> tuple[HostPort, ...]:
        containers = self.pod.spec.containers + [
            c for c in self.pod.spec.init_containers if c.restart_policy == "Always"
        ]
        return tuple(
            (port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
            for container in containers
            for port in container.ports
            if port.host_port
        )

    @cached_property
    def claims(self) -> tuple[str, ...]:
        """The keys of the claims that the pod uses, those of its ephemeral volumes among them."""
        return tuple(f"{self.namespace}/{name}" for name in claim_names(self.pod))

    @cached_property
    def images(self) -> tuple[str, ...]:
        containers = self.pod.spec.init_containers + self.pod.spec.containers
        names = [container.image or "" for container in containers]
        names += [v.image.reference or "" for v in self.pod.spec.volumes if v.image is not None]
        return tuple(normalized_image(name) for name in names)

    @cached_property
    def affinity(self) -> AffinityTerms:
        found = self.pod.spec.affinity.pod_affinity if self.pod.spec.affinity else None
        return self._terms(found) if found else NO_TERMS

    @cached_property
    def anti_affinity(self) -> AffinityTerms:
        found = self.pod.spec.affinity.pod_anti_affinity if self.pod.spec.affinity else None
        return self._terms(found) if found else NO_TERMS

    def _terms(self, found: core_v1.PodAffinity | core_v1.PodAntiAffinity) -> AffinityTerms:
        return AffinityTerms(
            tuple(self._term(term) for term in found.required_during_scheduling_ignored_during_execution),
            tuple(
                (self._term(weighted.pod_affinity_term), weighted.weight)
                for weighted in found.preferred_during_scheduling_ignored_during_execution
                if weighted.pod_affinity_term is not None
            ),
        )

    def _term(self, term: core_v1.PodAffinityTerm) -> AffinityTerm:
        namespaces: frozenset[str] | None = frozenset(term.namespaces)
        by_label = from_label_selector(term.namespace_selector) if term.namespace_selector is not None else None
        if by_label is None and not namespaces:
            namespaces = frozenset({self.namespace})
        elif by_label is not None and by_label.empty:
            namespaces, by_label = None, None
        return AffinityTerm(namespaces, by_label, from_label_selector(term.label_selector), term.topology_key)

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
                self.ports,
                self.images,
            )
        )


NO_TERMS = AffinityTerms()


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
