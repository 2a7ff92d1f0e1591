"""Pods that send with addresses that are not theirs: raw frames from a pod's own device, and who receives them."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.host.netproxy.conftest import NODE_IP, PODS, Site, populated, running, until
from tests.host.netproxy.frame_senders import (
    SEND,
    arrived,
    device,
    expected,
    heard_of,
    prepare,
    ready_file,
    spoken_to_all,
    third_pod,
    write_result,
)
from tests.host.netproxy.raw_frames import (
    A6,
    ALL_NODES,
    B6,
    BROADCAST,
    C6,
    FOREIGN,
    GATEWAY,
    GATEWAY6,
    A,
    B,
    C,
    arp,
    discovery,
    ether,
    frames,
    ip4,
    ip6,
    udp,
)
from tests.support.netns import Namespace
from tests.support.policies import pod, policy
from tests.support.services import node, service, slice_of


def test_only_what_is_a_pods_own_leaves_it_and_damage_is_repaired(site: Site) -> None:
    async def check() -> None:
        async with running(site.config, populated()):
            await until(lambda: ready_file(site, *PODS), "the pods are guarded")
            assert await asyncio.to_thread(arrived, site) == expected()
            for damage in (
                ("flush", "ruleset"),
                ("flush", "set", "bridge", "wherry-sources", "ports"),
                ("flush", "chain", "bridge", "wherry-sources", "sent-by-ipv4"),
                ("insert", "rule", "bridge", "wherry-sources", "prerouting", "accept"),
            ):
                await asyncio.to_thread(site.node.run, "nft", *damage)
                await until(lambda: arrived(site) == expected(), f"{damage} is repaired", 30)
        # The table holds while the role is down, and the next one takes it over.
        assert await asyncio.to_thread(arrived, site) == expected()
        async with running(site.config, populated()):
            assert await asyncio.to_thread(arrived, site) == expected()
            await until(lambda: ready_file(site, *PODS), "the pods are guarded still")

    prepare(site)
    site.node.inside(check)


@pytest.mark.parametrize("site", ["nftables"], indirect=True)
def test_a_pod_whose_result_is_not_read_sends_as_no_known_pod(site: Site) -> None:
    """Nor as the gateway, another node's pod, a node or the outside, neither while the role runs nor after it has ended."""
    a, b = site.pods.values()

    def strangers(pod: Namespace) -> tuple[set[str], set[str]]:
        """Return the frames that passed, and those that may."""
        (own, link), (other, other_link), (known, known_link) = device(pod), device(b), device(a)

        def note(name: str) -> bytes:
            return f"<{name}>".encode()

        def six(name: str, source: str) -> bytes:
            return ether(own, other, 0x86DD, ip6(source, B6, 17, udp(note(name)), 6))

        def four(name: str, source: str, sender: str = own) -> bytes:
            return ether(sender, other, 0x800, ip4(source, B, 17, udp(note(name))))

        def message(name: str, operation: int, sender: str, address: str, target: str) -> bytes:
            return ether(own, BROADCAST, 0x806, arp(operation, sender, address, target, note(name)))

        def nd(kind: int, source: str, subject: str) -> bytes:
            return ether(own, ALL_NODES, 0x86DD, ip6(source, "ff02::1", 58, discovery(kind, subject), 2))

        allowed = {
            "own4": four("own4", C),
            "own6": six("own6", C6),
            "own-arp": message("own-arp", 1, own, C, C),
            "own-probe": message("own-probe", 1, own, "0.0.0.0", C),
            "question": message("question", 1, own, C, A),
            "dad": nd(135, "::", C6),
            "advert": nd(136, C6, C6),
            "solicit": nd(135, link, A6),
        }
        forbidden = {
            "mac": four("mac", C, known),
            "pod4": four("pod4", A),
            "gateway4": four("gateway4", GATEWAY),
            "pod6": six("pod6", A6),
            "gateway6": six("gateway6", GATEWAY6),
            "link-local": six("link-local", known_link),
            "arp": message("arp", 2, own, A, B),
            "arp-gateway": message("arp-gateway", 2, own, GATEWAY, B),
            "arp-mac": message("arp-mac", 2, known, C, B),
            "probe": message("probe", 1, own, "0.0.0.0", A),
            "dad-of-pod": nd(135, "::", A6),
            "dad-of-link-local": nd(135, "::", known_link),
            "advert-of-pod": nd(136, C6, A6),
            "advert-of-gateway": nd(136, C6, GATEWAY6),
            "strange-protocol": ether(own, other, 0x88B5, note("strange-protocol")),
            "to-link-local": ether(own, other, 0x86DD, ip6(C6, other_link, 17, udp(note("to-link-local")), 6)),
            "from-link-local": six("from-link-local", link),
            "from-nobody": six("from-nobody", "::"),
            "router-advert": nd(134, link, "::"),
            "redirect": nd(137, link, "::"),
            "dhcp": ether(own, other, 0x800, ip4(C, B, 17, udp(note("dhcp"), 67, 68))),
        }
        foreign4 = {"other-node's-pod": "10.244.9.9", "node": NODE_IP, "outside": "198.51.100.7", "nobody": "0.0.0.0"}
        for kind, address in foreign4.items():
            forbidden[f"from-{kind}"] = four(f"from-{kind}", address)
            if kind != "nobody":
                forbidden[f"arp-of-{kind}"] = message(f"arp-of-{kind}", 2, own, address, B)
                forbidden[f"probe-of-{kind}"] = message(f"probe-of-{kind}", 1, own, "0.0.0.0", address)
        for kind, address in {"other-node's-pod": "fd00:244:9::9", "outside": "2001:db8::7"}.items():
            forbidden[f"from6-{kind}"] = six(f"from6-{kind}", address)
            forbidden[f"dad-of-{kind}"] = nd(135, "::", address)
            forbidden[f"advert-of-{kind}"] = nd(136, C6, address)
            forbidden[f"advert-by-{kind}"] = nd(136, address, C6)
            forbidden[f"solicit-by-{kind}"] = nd(135, address, B6)
        # Receivers read through tags of ID 0, and the rules see the first alone.
        for tags in (1, 2):
            tagged = struct.pack("!HH", 0, 0x8100) * (tags - 1) + struct.pack("!HH", 0, 0x800)
            name = f"pod4-behind-tags-{tags}"
            forbidden[name] = ether(own, other, 0x8100, tagged + four(name, A)[14:])
        return heard_of(site, pod, allowed | forbidden, four("last", C)), set(allowed)

    async def check() -> None:
        range4, range6 = "10.244.1.0/24", "fd00:244:1::/64"
        async with running(site.config, populated(node("node-1", range4, NODE_IP, cidr6=range6))):
            await until(lambda: ready_file(site, *PODS), "the pods are guarded")
            await until(lambda: range6 in site.node.run("nft", "list", "ruleset"), "the node's ranges are known")
            with third_pod(site) as pod:
                passed, allowed = await asyncio.to_thread(strangers, pod)
                assert passed == allowed
        with third_pod(site) as pod:
            passed, allowed = await asyncio.to_thread(strangers, pod)
            assert passed == allowed

    prepare(site)
    site.node.inside(check)


@pytest.mark.parametrize("site", ["nftables"], indirect=True)
def test_no_result_of_a_pod_lets_it_send_from_another_nodes_address(site: Site) -> None:
    """Not with annotations as large as they may be, nor by a result that cannot be read."""
    a, b = site.pods.values()
    file = Path(site.config.pod_network.cni_results_dir) / "wherry-pod-a-eth0"

    def passed(witness: Namespace) -> set[str]:
        (own, _), (other, _), (third, _) = device(a), device(b), device(witness)
        made = {
            name: ether(own, other, 0x800, ip4(source, B, 17, udp(f"<{name}>".encode())))
            for name, source in (("own", A), ("another node's", "10.244.2.5"))
        }
        return heard_of(site, a, made, ether(third, other, 0x800, ip4(C, B, 17, udp(b"<last>"))), witness)

    async def check() -> None:
        with third_pod(site) as witness:
            write_result(site, "pod-c", witness, f"{C}/24")
            async with running(site.config, populated()):
                await until(lambda: ready_file(site, *PODS, "pod-c"), "the pods are guarded")
                assert await asyncio.to_thread(passed, witness) == {"own"}
                await asyncio.to_thread(file.write_text, "{")
                await until(lambda: passed(witness) == set(), "the port that nobody knows is closed")
                write_result(site, "pod-a", a, f"{A}/24", f"{A6}/64", annotation="<" * (256 << 10))
                await until(lambda: passed(witness) == {"own"}, "the pod sends from its own address again")

    prepare(site)
    write_result(site, "pod-a", a, f"{A}/24", f"{A6}/64", annotation="<" * (256 << 10))
    site.node.inside(check)


@pytest.mark.parametrize("site", ["nftables"], indirect=True)
def test_no_frame_takes_another_pods_mac(site: Site) -> None:
    """Not even one to a link-local group, which the bridge never forwards."""
    sender, receiver = site.pods.values()
    groups = [f"01:80:c2:00:00:{number:02x}" for number in range(16)]
    # Its kernel's own frames would take the MAC back before the test looks.
    receiver.run("sysctl", "-qw", "net.ipv6.conf.eth0.router_solicitations=0")

    def holder() -> str:
        entries = json.loads(site.node.run("bridge", "-j", "fdb", "show", "br", "cni0"))
        theirs = device(receiver)[0]
        return "".join(each["ifname"] for each in entries if each["mac"] == theirs and each.get("state") != "permanent")

    def send(namespace: Namespace, frame: bytes) -> None:
        namespace.run(sys.executable, "-I", "-c", SEND, input=frame.hex())

    def takers() -> list[str]:
        """Return the groups a frame to which takes pod-b's MAC."""
        other, found = device(receiver)[0], []
        for group in (BROADCAST, *groups):
            send(receiver, ether(other, BROADCAST, 0x806, arp(2, other, B, GATEWAY, b"")))
            assert holder() == "pod-b"
            send(sender, ether(other, group, 0x88CC, bytes(46)))
            if holder() != "pod-b":
                found.append(group)
        return found

    async def check() -> None:
        async with running(site.config, populated()):
            await until(lambda: ready_file(site, *PODS), "the pods are guarded")
            assert await asyncio.to_thread(takers) == []
            await asyncio.to_thread(site.node.run, "nft", "flush", "chain", "bridge", "wherry-sources", "input")
            await until(lambda: takers() == [], "the emptied chain is repaired", 30)
        off = replace(site.config, pod_network=replace(site.config.pod_network, source_guard=False))
        async with running(off, populated()):
            await until(lambda: not ready_file(site), "the table is removed")
            assert set(groups[3:]) < set(await asyncio.to_thread(takers))

    prepare(site)
    site.node.inside(check)


@pytest.mark.parametrize("site", ["nftables"], indirect=True)
def test_without_the_guard_everything_arrives(site: Site) -> None:
    """So the frames are such as pods understand, and the guard of an earlier life is removed."""

    async def check() -> None:
        async with running(site.config, populated()):
            await until(lambda: ready_file(site, *PODS), "the pods are guarded")
        off = replace(site.config, pod_network=replace(site.config.pod_network, source_guard=False))
        async with running(off, populated()):
            await until(lambda: not ready_file(site), "the table is removed")
            zero = "00:00:00:00:00:00"
            # ICMP that belongs to no connection that the node tracks is dropped as invalid in any case. Connection tracking
            # does not reassemble packets whose first fragment lacks headers (RFC 8200); with IPv4 alone it sees none of IPv6.
            dropped = {"redirect-ipv4", "router-advert-ipv4", "dhcpv6-in-second-fragment"}
            everything = set(frames(zero, zero, "fe80::1", "fe80::2")) - dropped
            assert await asyncio.to_thread(arrived, site) == everything

    prepare(site)
    site.node.inside(check)


@pytest.mark.parametrize("guard", [True, False])
def test_a_borrowed_address_borrows_no_policys_rights(site: Site, guard: bool) -> None:
    """Pod-b lets pod-a alone in; pod-c takes pod-a's address."""

    async def check() -> None:
        api = populated(
            SlimNamespace(SlimMeta(name="default")),
            pod("a", A, labels={"app": "a"}),
            pod("b", B, labels={"app": "b"}),
            pod("c", C, labels={"app": "c"}),
            policy(
                "only-a",
                podSelector={"matchLabels": {"app": "b"}},
                ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}]}],
            ),
        )
        config = replace(site.config, pod_network=replace(site.config.pod_network, source_guard=guard))
        got = site.folder / "got"
        program = (
            "import socket, sys\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 7000)); out = open(sys.argv[1], 'w')\n"
            "while True: print(s.recv(99).decode(), file=out, flush=True)\n"
        )
        site.pods["pod-b"].start(sys.executable, "-I", "-c", program, str(got))
        await until(got.exists, "pod-b listens")

        def send(namespace: Namespace, source: str, text: str) -> None:
            frame = ether(
                device(namespace)[0], device(site.pods["pod-b"])[0], 0x800, ip4(source, B, 17, udp(text.encode()))
            )
            namespace.run(sys.executable, "-I", "-c", SEND, input=frame.hex())

        with third_pod(site) as other:
            write_result(site, "pod-c", other, f"{C}/24")
            async with running(config, api):
                await until(lambda: "wherry-policy" in site.node.run("nft", "list", "tables"), "the policy is in force")
                await until(lambda: ready_file(site, "pod-c") is guard, "the pods are guarded, or not")
                await until(
                    lambda: send(site.pods["pod-a"], A, "from-a") or "from-a" in got.read_text(), "pod-a is let in"
                )
                for _ in range(5):
                    await asyncio.to_thread(send, other, C, "from-c")
                    await asyncio.to_thread(send, other, A, "borrowed")
                await until(
                    lambda: send(site.pods["pod-a"], A, "after") or "after" in got.read_text(), "pod-a is still"
                )
                seen = set(got.read_text().split())
                assert seen == ({"from-a", "after"} if guard else {"from-a", "after", "borrowed"})

    prepare(site)
    site.node.inside(check)


INNER, INNER6 = "172.31.0.1", "fd31::1"


@pytest.mark.parametrize("guard", [True, False])
def test_a_pod_is_reached_at_its_own_addresses_alone(site: Site, guard: bool) -> None:
    """Pod-b lets nobody in, and has addresses that no policy knows: those of a network of its own, as Docker in it makes."""

    async def check() -> None:
        api = populated(
            SlimNamespace(SlimMeta(name="default")),
            pod("a", A, A6),
            pod("b", B, B6, labels={"app": "b"}),
            policy("nobody", podSelector={"matchLabels": {"app": "b"}}),
        )
        config = replace(site.config, pod_network=replace(site.config.pod_network, source_guard=guard))
        sender, receiver = site.pods.values()
        for address in (f"{INNER}/32", f"{INNER6}/128"):
            receiver.run("ip", "address", "add", address, "dev", "lo")
        (own, _), (other, _) = device(sender), device(receiver)

        def frame(name: str, target: str, mac: str = other) -> bytes:
            text = f"<{name}>".encode()
            if ":" in target:
                return ether(own, mac, 0x86DD, ip6(A6, target, 17, udp(text), 6))
            return ether(own, mac, 0x800, ip4(A, target, 17, udp(text)))

        made = {
            "policy4": frame("policy4", B),
            "inner4": frame("inner4", INNER),
            "inner6": frame("inner6", INNER6),
            "inner4-by-broadcast": frame("inner4-by-broadcast", INNER, BROADCAST),
            "flooded": frame("flooded", "10.244.1.77", FOREIGN),
            "loopback": frame("loopback", "127.0.0.1"),
        }
        async with running(config, api):
            await until(lambda: "wherry-policy" in site.node.run("nft", "list", "tables"), "the policy is in force")
            await until(lambda: ready_file(site, *PODS) is guard, "the pods are guarded, or not")
            await until(lambda: site.error(sender, B, 8080) == "ETIMEDOUT", "pod-b is isolated")
            honest = ether(own, BROADCAST, 0x806, arp(1, own, A, B, b"<last>"))
            heard = await asyncio.to_thread(heard_of, site, sender, made, honest)
            assert heard == (set() if guard else set(made) - {"policy4", "loopback", "flooded"})

    prepare(site)
    site.node.inside(check)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("guard", [True, False])
def test_no_pod_reaches_loopback_addresses_of_the_node(site: Site, guard: bool, known: bool) -> None:
    """The plugin portmap sets route_localnet of the bridge. A pod whose result is not read does not get through either."""
    sender = site.pods["pod-a"]
    got = site.folder / "got"
    program = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 7000)); out = open(sys.argv[1], 'w')\n"
        "while True: print(s.recv(99).decode(), file=out, flush=True)\n"
    )

    def send(target: str) -> bool:
        frame = ether(
            device(sender)[0], device(site.node, "cni0")[0], 0x800, ip4(A, target, 17, udp(f"to-{target}".encode()))
        )
        sender.run(sys.executable, "-I", "-c", SEND, input=frame.hex())
        return f"to-{target}" in got.read_text()

    async def check() -> None:
        config = replace(site.config, pod_network=replace(site.config.pod_network, source_guard=guard))
        async with running(config, populated()):
            ports = PODS if known else ()
            await until(lambda: ready_file(site, *ports) is guard, "the pods are guarded, or not")
            await until(lambda: site.fetch(site.pods["pod-b"], A, 8080), "the role runs")
            site.node.run("sysctl", "-qw", "net.ipv4.conf.cni0.route_localnet=1")
            await until(lambda: send(GATEWAY), "the node gets what is sent to its own address")
            for _ in range(3):
                await asyncio.to_thread(send, "127.0.0.1")
            await until(lambda: send(GATEWAY), "it still does")
            assert "to-127.0.0.1" not in got.read_text()

    prepare(site)
    if not known:
        for result in Path(site.config.pod_network.cni_results_dir).iterdir():
            result.unlink()
    site.node.start(sys.executable, "-I", "-c", program, str(got))
    site.node.inside(check)


def test_honest_pods_notice_nothing(site: Site) -> None:
    """Services, hairpin, node ports, DNS and other pods, in every mode."""

    async def check() -> None:
        web = service("web", "10.96.5.1")
        async with running(site.config, populated(web, slice_of("web", A))):
            await until(lambda: ready_file(site, *PODS), "the pods are guarded")
            a, b = site.pods.values()
            await until(lambda: site.fetch(b, "10.96.5.1") == "pod-a", "a Service")
            await until(lambda: site.fetch(a, "10.96.5.1") == "pod-a", "itself through its Service")
            assert await asyncio.to_thread(site.fetch, b, A, 8080) == "pod-a"
            assert await asyncio.to_thread(site.fetch, b, f"[{A6}]", 8080) == "pod-a"
            assert await asyncio.to_thread(site.fetch, site.node, A, 8080) == "pod-a"
            assert await asyncio.to_thread(site.fetch, site.client, A, 8080) == "pod-a"
            for target in ("10.244.1.255", "255.255.255.255", "239.1.1.1", "ff02::1:5"):
                assert await asyncio.to_thread(spoken_to_all, site, target) == {"last", "all"}, target
            lookup = await asyncio.to_thread(
                b.run, "busybox", "nslookup", "kube-dns.kube-system.svc.cluster.local", "10.96.0.10"
            )
            assert "10.96.0.10" in lookup
            await until(lambda: site.error(b, NODE_IP, 10259) == "ECONNREFUSED", "the node answers")

    prepare(site)
    site.node.inside(check)
