"""A pod as the scheduler sees it: everything that placing it needs, worked out once.

`signature` is equal for pods that every node-local filter and score treats alike (the replicas of one template), so that
their verdicts on a node can be shared. It is a digest: caches keyed by it do not grow with the pods' specs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cached_property
from typing import Any

import msgspec

from control.event_loop.weight import LARGE
from control.scheduler import disks
from control.scheduler.affinity_sample import AffinitySample
from control.scheduler.node_selection import NodeSelection
from control.scheduler.pod_terms import NO_TERMS, PodTerms, preferred, required
from control.scheduler.spreads import Spreads, spreads_of
from control.scheduler.term_sets import term_set
from control.scheduler.toleration_set import Tolerations
from kube import node_affinity
from kube.api import core_v1
from kube.host_ports import EVERY_ADDRESS, Ports, by_number
from kube.object_names import key_of
from kube.pod_requests import Amounts, pod_requests
from kube.volume_binding import claim_names

UNSET = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""Requests that scores count for a container without any (upstream: DefaultMilliCPURequest, DefaultMemoryRequest)."""


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
        """Results of plugins in the attempt that is under way, by the plugins' names."""
        self.forgotten = False
        """True if the results computed for the pod were dropped after its last attempt."""
        asked = pod_requests(pod, UNSET)
        self.score_cpu, self.score_memory = asked.get("cpu", 0), asked.get("memory", 0)

    @cached_property
    def size(self) -> int:
        """Bytes of the pod's spec and labels."""
        return len(msgspec.json.encode((self.pod.spec, self.labels)))

    def follow(self, pod: core_v1.Pod) -> bool:
        """Store a new state of the pod if all that was worked out still holds; False if it does not."""
        if pod.spec != self.pod.spec or pod.metadata.labels != self.labels:
            return False
        self.pod = pod
        return True

    def prepare(self) -> None:
        """Work out what placing the pod needs, all at once; another thread may do it."""
        self.read_terms()
        self.selection.prepare()
        for name in ("tolerations", "ports", "claims", "disks", "images", "named_nodes"):
            getattr(self, name)
        for name in ("signature", "selection_digest", "tolerations_digest", "spreads"):
            getattr(self, name)
        for spread in (*self.spreads.hard, *self.spreads.soft):
            _ = spread.pod_selection(self.namespace).size

    def forget(self) -> None:
        """Drop what was computed of the pod; it is computed again when it is needed."""
        for name in _COMPUTED:
            self.__dict__.pop(name, None)
        self.forgotten = True

    @cached_property
    def affinity_sample(self) -> AffinitySample | None:
        """The part of required affinity that pods which arrive are compared with."""
        affinity = self.pod.spec.affinity
        near = affinity.pod_affinity if affinity is not None else None
        return AffinitySample(near, self.namespace) if near is not None else None

    @property
    def has_large_terms(self) -> bool:
        """True if reading the pod's affinity terms takes long, and has not been done."""
        affinity = self.pod.spec.affinity
        if (
            affinity is None
            or "terms" in self.__dict__
            or (affinity.pod_affinity or affinity.pod_anti_affinity) is None
        ):
            return False
        return len(msgspec.json.encode((affinity.pod_affinity, affinity.pod_anti_affinity))) >= LARGE

    def read_terms(self) -> None:
        """Read the affinity terms and compute what comparing them needs; another thread may do it."""
        for terms in (self.terms.required_affinity, self.terms.required_anti_affinity, self.terms.preferred_affinity):
            if terms is not None:
                terms.prepare()

    def take_terms(self, old: PodInfo) -> None:
        """Take the terms that were read of an older state of the pod, if they are the same."""
        if "terms" in old.__dict__ and old.pod.spec.affinity == self.pod.spec.affinity:
            self.terms = old.terms

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
            term_set(required(near, self.namespace)),
            term_set(required(far, self.namespace)),
            term_set(preferred(near, 1, self.namespace) + preferred(far, -1, self.namespace)),
        )

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
    def selection_digest(self) -> bytes:
        """Digest of the node selector and the node affinity; empty if there is none."""
        spec = self.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        return _digest((spec.node_selector, affinity)) if spec.node_selector or affinity else b""

    @cached_property
    def tolerations_digest(self) -> bytes:
        return _digest(self.pod.spec.tolerations)

    @cached_property
    def signature(self) -> bytes:
        spec = self.pod.spec
        return _digest(
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


_COMPUTED = tuple(
    name
    for name, value in vars(PodInfo).items()
    if isinstance(value, cached_property) and name not in ("size", "affinity_sample")
)


def _digest(value: Any) -> bytes:
    """Return what stands for a part of a pod in the keys of caches."""
    return hashlib.sha256(msgspec.json.encode(value)).digest()


def normalized_image(name: str) -> str:
    """Return an image name with its tag, `:latest` where it has none (and no digest)."""
    return name if ":" in name.rsplit("/", 1)[-1] or "@" in name else f"{name}:latest"
