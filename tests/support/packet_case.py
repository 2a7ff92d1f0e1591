"""Types of the cases of the packet table (packet_cases.py): addresses, Services, and where packets end."""

from dataclasses import dataclass, field

from kube.api import core_v1, discovery_v1
from netproxy.endpoints import NodeView
from tests.support.packet_tracer import ACCEPT, Host, Outcome, Packet
from tests.support.services import endpoint, port, service

PODS = "10.244.0.0/16"
POD, NODE, WORLD = "10.244.1.9", "192.168.0.1", "203.0.113.50"
ELSEWHERE = "10.244.2.2"
"""A pod of another node."""
HERE, THERE = endpoint("10.244.1.2", node="node-1"), endpoint("10.244.2.2", node="node-2")
HERE_ADDRESS, THERE_ADDRESS = "10.244.1.2:8080", "10.244.2.2:8080"
IP = "10.96.5.1"
NODE_VIEW = NodeView("node-1", "east")


def to(*endpoints: str, snat: bool = False) -> Outcome:
    return Outcome(ACCEPT, frozenset(endpoints), snat)


BOTH, BOTH_SNAT = to(HERE_ADDRESS, THERE_ADDRESS), to(HERE_ADDRESS, THERE_ADDRESS, snat=True)


@dataclass
class Case:
    """A Service with its slices, and packets with where they must end."""

    name: str
    service: core_v1.Service
    slices: list[discovery_v1.EndpointSlice]
    packets: dict[Packet, Outcome]
    host: Host = field(default_factory=Host)


def node_port(**spec: object) -> core_v1.Service:
    return service("web", IP, port("http", 80, node_port=30080), type="NodePort", **spec)


def balanced(**spec: object) -> core_v1.Service:
    return service("web", IP, port("http", 80, node_port=30080), type="LoadBalancer", ingress=("198.51.100.1",), **spec)


DYING = endpoint("10.244.1.2", ready=False, serving=True, terminating=True)
DEAD = endpoint("10.244.1.2", ready=False, serving=False, terminating=True)
