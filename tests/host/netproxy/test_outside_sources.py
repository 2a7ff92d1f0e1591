"""Packets of a machine outside the cluster with addresses of this node's pods as their source: none is forwarded."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path

import pytest

from netproxy.config import ProxyConfig
from netproxy.netlink import nf_tables_generation
from netproxy.podnet.loopback_guard import LoopbackGuard
from netproxy.podnet.outside_guard import OutsideGuard
from tests.host.netproxy.conftest import CLIENT_IP, NODE_IP, Site, running, until
from tests.host.netproxy.frame_senders import SEND, device, prepare
from tests.host.netproxy.raw_frames import A6, B6, A, B, ether, ip4, ip6, udp
from tests.host.netproxy.test_policy import cluster_with
from tests.support.netns import Namespace
from tests.support.policies import pod, policy
from tests.support.services import node, port, service, slice_of

NODE6, CLIENT6 = "fd00:77::1", "fd00:77::2"
THIRD = "192.168.77.3"
SINK = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(('', 9999))\n"
    "out = open(sys.argv[1], 'a')\n"
    "while True:\n"
    "    data, peer = s.recvfrom(99)\n"
    "    print(peer[0].removeprefix('::ffff:'), data.decode(), file=out, flush=True)\n"
)
OURS = {4: (A, B, "10.244.1.77"), 6: (A6, B6, "fd00:244:1::77")}
TARGETS = {
    4: ((A, 9999), ("10.96.7.7", 9999), (NODE_IP, 30099), (NODE_IP, 30098)),
    6: ((A6, 9999), ("fd00:96::7", 9999), (NODE6, 30099), (NODE6, 30098)),
}


def addresses(site: Site) -> None:
    """Give the site IPv6 outside too, and let the kernel accept any source, as some distributions do."""
    prepare(site)
    site.node.run("ip", "address", "add", f"{NODE6}/64", "dev", "uplink", "nodad")
    site.client.run("ip", "address", "add", f"{CLIENT6}/64", "dev", "eth0", "nodad")
    site.client.run("ip", "address", "add", f"{THIRD}/24", "dev", "eth0")
    site.client.run("ip", "-6", "route", "add", "default", "via", NODE6)
    for each in ("all", "default", "uplink"):
        site.node.run("sysctl", "-qw", f"net.ipv4.conf.{each}.rp_filter=0")


def packet(source: str, target: str, number: int, text: str) -> bytes:
    if ":" in target:
        return ip6(source, target, 17, udp(text.encode(), 5000, number), 6, 64)
    return ip4(source, target, 17, udp(text.encode(), 5000, number))


class Outside:
    """The client, which sends packets and waits for the last of each group."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._number = 0
        self._macs = (device(site.client)[0], device(site.node, "uplink")[0])
        for name, namespace in (("pod", site.pods["pod-a"]), ("client", site.client)):
            namespace.start(sys.executable, "-I", "-c", SINK, str(self._file(name)))

    def _file(self, name: str) -> Path:
        return self._site.folder / f"received-{name}"

    def received(self, name: str = "pod") -> list[str]:
        path = self._file(name)
        return path.read_text().splitlines() if path.exists() else []

    async def passed(self, *packets: tuple[str, str, int]) -> list[str]:
        """Send these (source, target, port), and one from its own address until it arrives; return what the sinks got."""
        client = self._site.client
        self._number += 1
        last = f"last{self._number}"
        text = "\n".join(self._frame(*each, f"packet-to-{each[1]}-{each[2]}") for each in packets)
        await until(
            lambda: all(self._file(name).exists() for name in ("pod", "client")), "the sinks have their sockets"
        )
        before = len(self.received()), len(self.received("client"))
        await asyncio.to_thread(client.run, sys.executable, "-I", "-c", SEND, input=text)
        for source, target in ((CLIENT_IP, A), (CLIENT6, A6)):
            await self._arrives(client, self._frame(source, target, 9999, last), f"{source} {last}")
        found = self.received()[before[0] :] + self.received("client")[before[1] :]
        return [each for each in found if "packet" in each]

    async def _arrives(self, client: Namespace, frame: str, text: str) -> None:
        def there() -> bool:
            client.run(sys.executable, "-I", "-c", SEND, input=frame)
            return text in self.received()

        await until(there, text)

    def _frame(self, source: str, target: str, number: int, text: str) -> str:
        kind = 0x86DD if ":" in target else 0x800
        return ether(*self._macs, kind, packet(source, target, number, text)).hex()


def configured(site: Site) -> ProxyConfig:
    return dataclasses.replace(
        site.config,
        cluster_cidrs=("10.244.0.0/16", "fd00:244::/32"),
        service_cidrs=("10.96.0.0/12", "fd00:96::/112"),
    )


def objects() -> list[object]:
    found: list[object] = [
        node("node-1", "10.244.1.0/24", NODE_IP, cidr6="fd00:244:1::/64"),
        pod("a", A, A6, labels={"app": "a"}),
        pod("b", B, B6, labels={"app": "b"}),
    ]
    for name, last, number in (("udp", 7, 30099), ("local", 8, 30098)):
        found += [
            service(
                name,
                f"10.96.7.{last}",
                port("u", 9999, "UDP", node_port=number),
                type="NodePort",
                ips=[f"10.96.7.{last}", f"fd00:96::{last}"],
                external_traffic_policy="Local" if name == "local" else "Cluster",
            ),
            slice_of(name, A, ports={"u": 9999}, protocol="UDP"),
            slice_of(name, A6, ports={"u": 9999}, protocol="UDP", suffix="six", address_type="IPv6"),
        ]
    return found


ALLOWED = policy(
    "allowed",
    podSelector={"matchLabels": {"app": "a"}},
    ingress=[
        {"from": [{"podSelector": {"matchLabels": {"app": "b"}}}]},
        {"from": [{"ipBlock": {"cidr": f"{each}"}} for each in (f"{CLIENT_IP}/32", f"{CLIENT6}/128")]},
    ],
)


def test_no_packet_from_outside_has_an_address_of_this_nodes_pods_as_its_source(site: Site) -> None:
    """Neither to a pod nor by a Service to it, with and without a policy; nor is one sent on with the node's address."""
    addresses(site)
    forged = [(source, *target) for family in (4, 6) for source in OURS[family] for target in TARGETS[family]]
    forged += [("10.244.1.77", THIRD, 9999)]
    # An address of the node itself: rules take such packets for the node's.
    forged += [(NODE6, *target) for target in TARGETS[6]]
    honest = [(source, *target) for family, source in ((4, CLIENT_IP), (6, CLIENT6)) for target in TARGETS[family][:1]]

    async def check() -> None:
        api = cluster_with(*objects())
        outside = Outside(site)
        async with running(configured(site), api):
            await until(lambda: "wherry-sources" in site.node.run("nft", "list", "tables"), "the pods are guarded")
            await until(lambda: "10.96.7.8" in rules(site), "Services are served")
            assert len(await outside.passed(*honest)) == 2
            assert await outside.passed(*forged) == []
            api.put(ALLOWED)
            await until(lambda: "wherry-policy" in site.node.run("nft", "list", "tables"), "the policy is in force")
            assert await outside.passed(*forged) == []
            for damage in (("flush", "table", "inet", "wherry-outside"), ("delete", "table", "inet", "wherry-outside")):
                await asyncio.to_thread(site.node.run, "nft", *damage)
                assert await outside.passed(*forged), "without the rules they arrive"
                await until(lambda: "10.244.1.0/24" in outside_rules(site), "the rules are written again", 30)
                assert await outside.passed(*forged) == []
        # The rules hold while the role is down.
        assert await outside.passed(*forged) == []

    site.node.inside(check)


def rules(site: Site) -> str:
    if site.config.mode == "nftables":
        return site.node.run("nft", "list", "ruleset")
    if site.config.mode == "ipvs":
        return site.node.run("ipvsadm", "-Ln")
    return site.node.run(f"iptables-{site.config.iptables_flavour}-save")


def outside_rules(site: Site) -> str:
    return site.node.run("nft", "list", "table", "inet", "wherry-outside", check=False)


@pytest.mark.parametrize("site", ["nft", "nftables"], indirect=True)
def test_a_pod_reaches_itself_by_its_service_and_others_by_the_node(site: Site) -> None:
    """Hairpin traffic, the node's own packets and answers to a pod from outside pass the rules."""
    addresses(site)

    async def check() -> None:
        api = cluster_with(*objects())
        api.put(policy("none", podSelector={"matchLabels": {"app": "a"}}))
        async with running(configured(site), api):
            await until(lambda: site.fetch(site.pods["pod-a"], "10.96.5.1", 80, 1) == "pod-a", "it reaches itself")
            await until(lambda: site.error(site.client, A, 8080) == "ETIMEDOUT", "the policy is in force")
            await until(lambda: "10.244.1.0/24" in outside_rules(site), "the rules are written")
            assert await asyncio.to_thread(site.fetch, site.pods["pod-a"], "10.96.5.1") == "pod-a"
            assert await asyncio.to_thread(site.fetch, site.pods["pod-a"], NODE_IP, 30080) == "pod-a"
            assert await asyncio.to_thread(site.fetch, site.node, A, 8080) == "pod-a"
            assert await asyncio.to_thread(site.error, site.pods["pod-b"], CLIENT_IP, 9) == "ECONNREFUSED"

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nftables"], indirect=True)
def test_a_table_is_written_again_only_if_it_differs(site: Site) -> None:
    async def check() -> None:
        outside = OutsideGuard("cni0")
        await outside.set_node_ranges(("10.244.1.0/24", "fd00:244:1::/64"))
        tables: tuple[OutsideGuard | LoopbackGuard, ...] = (outside, LoopbackGuard("cni0"))
        for number, made in enumerate(tables):
            assert await made.verify()
            site.node.run("nft", "add", "table", "ip", f"others{number}")
            before = nf_tables_generation()
            assert await made.verify()
            assert nf_tables_generation() == before, made
            await made.cleanup()
        assert "wherry" not in site.node.run("nft", "list", "tables")

    site.node.inside(check)
