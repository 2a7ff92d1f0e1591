"""The packet table's site: this node, two pods on its bridge, the world around it; and what becomes of a packet there."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from netproxy.backend import Backend
from netproxy.model import plan_service
from netproxy.sysctl import ensure
from tests.support.netns import Namespace, namespaces, wire
from tests.support.packet_case import ELSEWHERE, NODE, NODE_VIEW, POD, Case
from tests.support.packet_cases import CASES
from tests.support.packet_probe import REFUSED, SERVER, SILENT, arrived, send, watch_sctp
from tests.support.packet_tracer import ACCEPT, DROP, Outcome, Packet

ENDPOINT = "10.244.1.2"
CLIENTS = ("203.0.113.0/24", "192.0.2.200/32")
BEYOND = ("192.0.2.0/25", "198.51.100.0/24", "10.244.2.0/23", "10.244.4.0/24")
PORTS = {"node": (22, 6443, 8080, 30080, 30081, 31000), "pod": (8080, 9090, 5354), "beyond": (80, 443, 8080, 9090)}
TRIES = 40
"""Connections until both of two endpoints must have been seen: one that is drawn evenly is missed once in 10^12."""


@dataclass
class Place:
    """The namespaces: clients from outside come by the node on their way to what is `beyond` it, other nodes' pods too."""

    node: Namespace
    pod: Namespace
    client: Namespace
    world: Namespace
    beyond: Namespace

    def of(self, source: str) -> Namespace:
        if source in (NODE, "127.0.0.1"):
            return self.node
        return {POD: self.client, ENDPOINT: self.pod, ELSEWHERE: self.beyond}.get(source, self.world)


@contextlib.contextmanager
def place() -> Iterator[Place]:
    tag = f"np-t{os.getpid()}"
    with namespaces(*(f"{tag}-{name}" for name in ("node", "pod", "client", "world", "beyond"))) as made:
        node, pod, client, world, beyond = made
        for namespace, device, net in ((world, "uplink", "192.168.0"), (beyond, "downlink", "192.168.9")):
            wire(node, device, namespace, "eth0")
            node.run("ip", "address", "add", f"{net}.1/24", "dev", device)
            namespace.run("ip", "address", "add", f"{net}.2/24", "dev", "eth0")
            namespace.run("ip", "route", "add", "default", "via", f"{net}.1")
        node.run("ip", "route", "add", "default", "via", "192.168.9.2")
        for cidr in CLIENTS:
            world.run("ip", "route", "add", "local", cidr, "dev", "lo")
            node.run("ip", "route", "add", cidr, "via", "192.168.0.2")
        for cidr in BEYOND:
            beyond.run("ip", "route", "add", "local", cidr, "dev", "lo")
        node.run("ip", "link", "add", "cni0", "type", "bridge")
        node.run("ip", "address", "add", "10.244.1.1/24", "dev", "cni0")
        node.run("ip", "link", "set", "cni0", "up")
        for name, ip, namespace in (("pod", ENDPOINT, pod), ("client", POD, client)):
            wire(node, name, namespace, "eth0")
            node.run("ip", "link", "set", name, "master", "cni0")
            node.run("ip", "link", "set", name, "type", "bridge_slave", "hairpin", "on")
            namespace.run("ip", "address", "add", f"{ip}/24", "dev", "eth0")
            namespace.run("ip", "route", "add", "default", "via", "10.244.1.1")
        for namespace, kind in ((node, "node"), (pod, "pod"), (beyond, "beyond")):
            namespace.start(sys.executable, "-I", "-c", SERVER, str(PORTS[kind]), "(5353,)")
        yield Place(*made)


def wrong_packets(
    proxy: Backend, otherwise: dict[str, dict[Packet, Outcome]], *, localhost: bool, silence: float = 0.4
) -> list[str]:
    """Lead the kernel from case to case of the table, send every packet, and say which did not end where it must.

    `otherwise` is what a mode does otherwise, `localhost` whether it serves node ports on 127.0.0.1, `silence` how many seconds
    without an answer count as dropped.
    """
    wrong: list[str] = []
    with place() as here:
        for address, number in ((ENDPOINT, 8080), (NODE, 22), ("192.0.2.1", 443)):
            deadline = time.monotonic() + 120
            while not send(here.node, Packet(NODE, address, number), 1).startswith(f"{address}:{number}|"):
                assert time.monotonic() < deadline, f"the test's own server at {address} does not start"
                time.sleep(0.05)

        async def begin() -> None:
            ensure("net/ipv4/ip_forward", "1")
            ensure("net/ipv4/conf/all/route_localnet", "1")
            ensure("net/bridge/bridge-nf-call-iptables", "1")
            await proxy.start({})

        here.node.inside(begin)
        for case in CASES:
            serve(here, proxy, case)
            for packet, usual in case.packets.items():
                if packet.destination == "127.0.0.1" and not localhost:
                    continue
                expected = otherwise.get(case.name, {}).get(packet, usual)
                found = fate(here, packet, expected, silence)
                if found:
                    wrong.append(f"{case.name}: {packet}: {found}, not {expected}")
    return wrong


def serve(here: Place, proxy: Backend, case: Case) -> None:
    """Lead the kernel from the case before to this one, as the role would; no flow of the one before remains."""
    services = {"default/x": plan_service(case.service, case.slices, NODE_VIEW)}

    async def apply() -> None:
        await proxy.apply(services)

    here.node.inside(apply)
    here.node.run("conntrack", "-F")


def fate(here: Place, packet: Packet, expected: Outcome, silence: float) -> str:
    """Return what became of a packet, "" where it is what was expected."""
    origin = here.of(packet.source)
    if packet.protocol == "sctp":
        return _sctp(here, origin, packet, expected)
    if expected.verdict != ACCEPT:
        found = send(origin, packet, silence if expected.verdict == DROP else 10)
        return "" if found == (SILENT if expected.verdict == DROP else REFUSED) else found
    seen: set[str] = set()
    for _ in range(TRIES):
        found = send(origin, packet, 10)
        endpoint, _, source = found.partition("|")
        if endpoint not in expected.endpoints:
            return found
        # A packet of the node's own keeps its source where that is the way's own address already.
        if origin is not here.node and (source != packet.source) != expected.snat:
            return found
        seen.add(endpoint)
        if len(seen) == min(len(expected.endpoints), 5):
            return ""
    return f"only ever {seen}"


def _sctp(here: Place, origin: Namespace, packet: Packet, expected: Outcome) -> str:
    with watch_sctp(here.pod) as watched:
        send(origin, packet, 0)
        try:
            found = arrived(watched)
        except TimeoutError:
            return SILENT
    return "" if found == f"{next(iter(expected.endpoints))}|{packet.source}" else found
