"""The fields of a pod that network policies depend on. No I/O."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections import Counter
from dataclasses import dataclass

from netproxy.families import of_family
from netproxy.policy.limits import MAX_NAMED_PORTS, MAX_PORTS_ALIKE
from netproxy.slim_objects import FINISHED, SlimPod


@dataclass(frozen=True, slots=True)
class NamedPort:
    """A named port of a pod."""

    name: str
    protocol: str
    number: int


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod that policies can select or name as a peer: it has its own network and has not finished."""

    namespace: str
    labels: dict[str, str]
    ips: tuple[str, ...]
    here: bool
    """True if it runs on this node."""
    created: str
    ports: tuple[NamedPort, ...] = ()
    uid: str = ""
    static_uid: str = ""
    """The UID under which the node runs a static pod, whose object (mirror pod) has another."""
    node: str = ""

    def addresses(self, family: int) -> tuple[str, ...]:
        return of_family(self.ips, family)

    def sharing(self, old: PodFacts) -> PodFacts:
        """Return these facts, sharing equal labels and ports with another pod's to save memory."""
        labels = old.labels if self.labels == old.labels else self.labels
        return dataclasses.replace(self, labels=labels, ports=old.ports if self.ports == old.ports else self.ports)


def _canonical(text: str) -> str:
    """Return an address in the form of rules, "" if it is invalid or has a zone (which may contain any text)."""
    try:
        return "" if "%" in text else str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def facts_of(pod: SlimPod, node_name: str) -> PodFacts | None:
    """Return the facts of a pod; None for one on the host's network, or with the phase Succeeded or Failed."""
    if pod.spec.host_network or pod.status.phase in FINISHED:
        return None
    texts = [each.ip for each in pod.status.pod_ips] or [pod.status.pod_ip]
    return PodFacts(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        ips=tuple(ip for text in texts if (ip := _canonical(text))),
        here=pod.spec.node_name == node_name,
        created=pod.metadata.creation_timestamp,
        ports=_named_ports(pod),
        uid=pod.metadata.uid,
        static_uid=pod.metadata.annotations.mirror if pod.metadata.annotations is not None else "",
        node=pod.spec.node_name,
    )


def _named_ports(pod: SlimPod) -> tuple[NamedPort, ...]:
    """Return the named ports without duplicates, up to the limit."""
    found: dict[NamedPort, None] = {}
    alike: Counter[tuple[str, str]] = Counter()
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for port in container.ports:
            if not port.name or not 0 < port.container_port < 65536:
                continue
            named = NamedPort(port.name, port.protocol or "TCP", port.container_port)
            name = named.name, named.protocol
            if named not in found and alike[name] < MAX_PORTS_ALIKE:
                alike[name] += 1
                found[named] = None
                if len(found) == MAX_NAMED_PORTS:
                    return tuple(found)
    return tuple(found)
