"""Packets to another node's tunnel port from other senders than the tunnel: none reaches a pod, while the tunnel works."""

from __future__ import annotations

import ipaddress
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netproxy.podnet.node_routes import DEVICE
from netproxy.podnet.tunnel_guard import TunnelGuard
from tests.host.netproxy.raw_frames import ether, ip4, udp
from tests.support.hollow import eventually
from tests.support.netns import Namespace, namespaces, wire

PORT, VNI, NODE_PORT = 8472, 1, 30111
MACS = {1: "0a:58:0a:f4:01:00", 2: "0a:58:0a:f4:02:00", 3: "0a:58:0a:f4:03:00"}
POD, CONTAINER = "10.244.2.5", "172.17.0.2"
SOURCE_PORT = 40000
"""Of all that the tunnels send: the kernel takes others by a hash of the packet in them."""
UNDERLAY = {4: {1: "192.168.9.1", 2: "192.168.9.2"}, 6: {1: "fd99::1", 2: "fd99::2"}}
RECEIVE = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 7000))\n"
    "out = open(sys.argv[1], 'a')\n"
    "while True: print(s.recv(99).decode(), file=out, flush=True)\n"
)
SEND = (
    "import os, socket, sys\n"
    "address, port, data, user = sys.argv[1:]\n"
    "if int(user): os.setgroups([]); os.setgid(int(user)); os.setuid(int(user))\n"
    "s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)\n"
    "try: s.sendto(bytes.fromhex(data), (address, int(port)))\n"
    "except PermissionError: pass\n"
)
SEND_FROM = (
    "import socket, sys\n"
    "address, port, source = sys.argv[1:]\n"
    "s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)\n"
    "s.bind(('', int(source))); s.sendto(b'x', (address, int(port)))\n"
)
MASQUERADE = (
    "table inet other { chain c { type nat hook postrouting priority 100; "
    'ip saddr 172.17.0.0/16 oifname != "docker0" masquerade; ip6 saddr fd17::/64 oifname != "docker0" masquerade; }\n}'
)


class Site:
    """Two nodes, a pod of node 2, and a container of another engine on node 1."""

    def __init__(self, family: int, nodes: tuple[Namespace, Namespace], container: Namespace, received: Path) -> None:
        self.node, self.receiver = nodes
        self.container, self.family, self._received = container, family, received
        self._number = 0

    async def passed(self, sender: Namespace, user: int, port: int = PORT, address: str = "") -> bool:
        """Send a packet of node 3's pod in a tunnel's, then others by the tunnel until one arrives; whether the first did."""
        self._number += 1
        text, last = f"forged{self._number}", f"last{self._number}"
        inner = ether(MACS[3], MACS[2], 0x0800, ip4("10.244.3.9", POD, 17, udp(text.encode(), 1234, 7000)))
        data = struct.pack("!II", 0x08000000, VNI << 8) + inner
        await eventually(self._received.exists)  # the receiver writes it once it has its socket
        self._send(sender, address or UNDERLAY[self.family][2], port, data, user)

        def arrived() -> bool:
            self._send(self.node, POD, 7000, last.encode(), 0)
            return last in self._texts()

        await eventually(arrived)
        return text in self._texts()

    def _send(self, sender: Namespace, address: str, port: int, data: bytes, user: int) -> None:
        sender.run(sys.executable, "-I", "-c", SEND, address, str(port), data.hex(), str(user))

    def _texts(self) -> list[str]:
        return self._received.read_text().splitlines() if self._received.exists() else []


@pytest.fixture(params=[4, 6], ids=["IPv4", "IPv6"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    family, place = request.param, os.getpid()
    with namespaces(*(f"ts-{name}-{place}" for name in ("n1", "n2", "pod", "other"))) as (one, two, pod, other):
        wire(one, "e0", two, "e0")
        length = 24 if family == 4 else 64
        for number, node in ((1, one), (2, two)):
            own, far = UNDERLAY[family][number], 3 - number
            node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
            node.run("ip", "address", "add", f"{own}/{length}", "dev", "e0", *(["nodad"] if family == 6 else []))
            tunnel = ("type", "vxlan", "id", str(VNI), "dstport", str(PORT), "nolearning", "local", own)
            tunnel += ("srcport", str(SOURCE_PORT), str(SOURCE_PORT + 1))
            node.run("ip", "link", "add", DEVICE, *tunnel)
            node.run("ip", "link", "set", DEVICE, "address", MACS[number], "up")
            node.run("ip", "address", "add", f"10.244.{number}.0/32", "dev", DEVICE)
            node.run("sysctl", "-qw", f"net.ipv4.conf.{DEVICE}.rp_filter=2")
            for each in (far, 3):
                node.run(
                    "ip", "route", "add", f"10.244.{each}.0/24", "via", f"10.244.{each}.0", "dev", DEVICE, "onlink"
                )
                node.run("ip", "neighbor", "add", f"10.244.{each}.0", "lladdr", MACS[each], "dev", DEVICE)
            node.run("bridge", "fdb", "append", MACS[far], "dev", DEVICE, "dst", UNDERLAY[family][far])
        for node, bridge, end, address in ((two, "cni0", pod, POD), (one, "docker0", other, CONTAINER)):
            gateway = f"{address.rpartition('.')[0]}.1"
            node.run("ip", "link", "add", bridge, "type", "bridge")
            wire(node, "v0", end, "eth0")
            node.run("ip", "link", "set", "v0", "master", bridge)
            node.run("ip", "link", "set", bridge, "up")
            node.run("ip", "address", "add", f"{gateway}/24", "dev", bridge)
            end.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
            end.run("ip", "route", "add", "default", "via", gateway)
        one.run("ip", "address", "add", "fd17::1/64", "dev", "docker0", "nodad")
        other.run("ip", "address", "add", "fd17::2/64", "dev", "eth0", "nodad")
        other.run("ip", "route", "add", "default", "via", "fd17::1")
        one.run("nft", "-f", "-", input=MASQUERADE)
        pod.start(sys.executable, "-I", "-c", RECEIVE, str(tmp_path / "received"))
        nodes = [ipaddress.ip_address(each) for each in UNDERLAY[family].values()]
        for node in (one, two):
            assert node.inside(lambda: TunnelGuard().set(nodes, PORT, "cni0", ()))
        yield Site(family, (one, two), other, tmp_path / "received")


async def test_packets_that_did_not_enter_the_tunnel_are_dropped(site: Site) -> None:
    senders = [(site.node, 65534)] + ([(site.container, 0)] if site.family == 4 else [])
    for sender, user in senders:
        assert not await site.passed(sender, user)
    # Without the rules they would arrive.
    for chain in ("unmarked", "forward", "output"):
        site.node.run("nft", "flush", "chain", "inet", "wherry-tunnel", chain)
    for sender, user in senders:
        assert await site.passed(sender, user)


async def test_packets_that_the_receiving_node_translates_to_its_tunnel_are_dropped(site: Site) -> None:
    """As a node port, or the address of a load balancer, whose endpoint is the tunnel of the node that gets the packet."""
    ip, address = {4: "ip", 6: "ip6"}[site.family], UNDERLAY[site.family][2]
    to = f"{address}:{PORT}" if site.family == 4 else f"[{address}]:{PORT}"
    balancer = {4: "10.99.0.1", 6: "fd98::1"}[site.family]
    rules = f"udp dport {NODE_PORT} dnat to {to}; {ip} daddr {balancer} udp dport {PORT} dnat to {to}"
    service = f"table {ip} service {{ chain c {{ type nat hook prerouting priority -100; {rules}; }}\n}}"
    site.receiver.run("nft", "-f", "-", input=service)
    site.node.run("ip", f"-{site.family}", "route", "add", balancer, "via", address)
    ways = [(NODE_PORT, ""), (PORT, balancer)]
    for port, by in ways:
        assert not await site.passed(site.node, 65534, port, by)
    # Without the rules they would arrive.
    site.receiver.run("nft", "flush", "chain", "inet", "wherry-tunnel", "input")
    site.receiver.run("conntrack", "-F")
    for port, by in ways:
        assert await site.passed(site.node, 65534, port, by)


async def test_nobody_takes_what_another_node_sends_by_the_tunnel(site: Site, tmp_path: Path) -> None:
    """Connection tracking gives a sender that is masqueraded to the tunnel's port all from a port that it has sent to."""
    file = tmp_path / "received by node 1"
    site.node.start(sys.executable, "-I", "-c", RECEIVE, str(file))
    await eventually(file.exists)
    flow = ("-p", "udp", "--orig-port-src", str(PORT), "--orig-port-dst", str(SOURCE_PORT))

    def take(source: int) -> None:
        site.container.run(
            sys.executable, "-I", "-c", SEND_FROM, UNDERLAY[site.family][2], str(SOURCE_PORT), str(source)
        )

    def arrived(text: str) -> bool:
        site._send(site.receiver, "10.244.1.0", 7000, text.encode(), 0)
        return text in file.read_text().splitlines()

    take(PORT)
    await eventually(lambda: arrived("guarded"))
    site.node.run("conntrack", "-F")
    site.node.run("nft", "flush", "chain", "inet", "wherry-tunnel", "postrouting")
    take(PORT)
    assert f"dport={PORT}" in site.node.run("conntrack", "-L", "-f", f"ipv{site.family}", *flow)
    for _ in range(5):
        assert not arrived("not guarded")
    site.node.run("conntrack", "-F")
    await eventually(lambda: arrived("not guarded"))
