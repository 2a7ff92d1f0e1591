"""The fields of a pod that network policies depend on. No I/O."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from netproxy.families import of_family
from netproxy.slim_objects import FINISHED, SlimPod


@dataclass(frozen=True, slots=True)
class NamedPort:
    """A port that a pod gives a name to."""

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

    def addresses(self, family: int) -> tuple[str, ...]:
        return of_family(self.ips, family)


def _canonical(text: str) -> str:
    """Return an address as it stands in rules, "" for what is none; the name of a link could hold anything."""
    try:
        return "" if "%" in text else str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def facts_of(pod: SlimPod, node_name: str) -> PodFacts | None:
    """Return the facts of a pod; None for one on the host's network, or one whose containers have ended for good."""
    if pod.spec.host_network or pod.status.phase in FINISHED:
        return None
    texts = [each.ip for each in pod.status.pod_ips] or [pod.status.pod_ip]
    return PodFacts(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        ips=tuple(ip for text in texts if (ip := _canonical(text))),
        here=pod.spec.node_name == node_name,
        created=pod.metadata.creation_timestamp,
        ports=tuple(
            NamedPort(port.name, port.protocol or "TCP", port.container_port)
            for container in (*pod.spec.containers, *pod.spec.init_containers)
            for port in container.ports
            if port.name and 0 < port.container_port < 65536
        ),
        uid=pod.metadata.uid,
    )
