"""Packets of a pod to the node's loopback address, with `route_localnet` of its bridge as the plugin portmap sets it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.node import loopback_guard
from agent.node.loopback_guard import LoopbackGuard
from tests.host.netproxy.raw_frames import ether, ip4, udp
from tests.support.hollow import eventually
from tests.support.netns import Namespace, namespaces, wire

NODE, POD, LOOPBACK = "10.244.0.1", "10.244.0.2", "127.0.0.1"
SERVER, TRANSLATED = 9999, 9998
RECEIVE = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', int(sys.argv[1])))\n"
    "out = open(sys.argv[2], 'a')\n"
    "while True: print(s.recv(99).decode(), file=out, flush=True)\n"
)
SEND = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0))\n"
    "for line in sys.stdin: s.send(bytes.fromhex(line.strip()))\n"
)
REDIRECT = (
    "table ip other { chain c { type nat hook prerouting priority -100; "
    f"udp dport {TRANSLATED} dnat to {LOOPBACK}:{SERVER}; }}\n}}"
)


class Site:
    def __init__(self, node: Namespace, pod: Namespace, received: Path) -> None:
        self.node, self.pod, self._received, self._number = node, pod, received, 0
        self._macs = [
            json.loads(ns.run("ip", "-j", "link", "show", name))[0]["address"] for ns, name in self._devices()
        ]

    def _devices(self) -> tuple[tuple[Namespace, str], ...]:
        return ((self.node, "cni0"), (self.pod, "eth0"))

    async def passed(self, target: str, port: int) -> bool:
        """Send a packet of the pod, and others to the node's own address until one arrives; return whether the first did."""
        self._number += 1
        text, last = f"packet{self._number}", f"last{self._number}"
        await eventually(self._received.exists)  # the receiver writes it once it has its socket
        self._send(target, port, text)

        def arrived() -> bool:
            self._send(NODE, SERVER, last)
            return last in self._texts()

        await eventually(arrived)
        return text in self._texts()

    def _texts(self) -> list[str]:
        return self._received.read_text().splitlines() if self._received.exists() else []

    def _send(self, target: str, port: int, text: str) -> None:
        frame = ether(self._macs[1], self._macs[0], 0x0800, ip4(POD, target, 17, udp(text.encode(), 5000, port)))
        self.pod.run(sys.executable, "-I", "-c", SEND, input=frame.hex())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with namespaces("lg-node", "lg-pod") as (node, pod):
        node.run("ip", "link", "add", "cni0", "type", "bridge")
        wire(node, "v0", pod, "eth0")
        node.run("ip", "link", "set", "v0", "master", "cni0")
        node.run("ip", "link", "set", "cni0", "up")
        node.run("ip", "address", "add", f"{NODE}/24", "dev", "cni0")
        node.run("sysctl", "-qw", "net.ipv4.conf.cni0.route_localnet=1")
        pod.run("ip", "address", "add", f"{POD}/24", "dev", "eth0")
        node.run("nft", "-f", "-", input=REDIRECT)
        node.start(sys.executable, "-I", "-c", RECEIVE, str(SERVER), str(tmp_path / "received"))
        yield Site(node, pod, tmp_path / "received")


async def test_packets_to_loopback_addresses_are_dropped_but_translated_ones(site: Site) -> None:
    assert await site.passed(LOOPBACK, SERVER)
    guard = LoopbackGuard()
    assert site.node.inside(guard.verify)
    written = site.node.run("nft", "-a", "list", "table", "inet", "wherry-localnet")
    assert site.node.inside(guard.verify)
    assert site.node.run("nft", "-a", "list", "table", "inet", "wherry-localnet") == written  # it is not written again
    assert not await site.passed(LOOPBACK, SERVER)
    assert not await site.passed("127.9.9.9", SERVER)
    assert await site.passed(NODE, TRANSLATED)
    site.node.run("nft", "flush", "table", "inet", "wherry-localnet")
    assert await site.passed(LOOPBACK, SERVER)
    assert site.node.inside(guard.verify)
    assert not await site.passed(LOOPBACK, SERVER)
    site.node.inside(loopback_guard.remove)
    assert await site.passed(LOOPBACK, SERVER)
