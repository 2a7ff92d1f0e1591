"""Pods that send with addresses that are not theirs: raw frames from a pod's own device, and who receives them."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.host.netproxy.conftest import NODE_IP, PODS, Site, populated, running, until
from tests.support.netns import Namespace, namespaces, wire
from tests.support.policies import pod, policy
from tests.support.services import service, slice_of

A, B, C, GATEWAY = PODS["pod-a"], PODS["pod-b"], "10.244.1.4", "10.244.1.1"
A6, B6, C6, GATEWAY6 = "fd00:244:1::2", "fd00:244:1::3", "fd00:244:1::4", "fd00:244:1::1"
BROADCAST, ALL_NODES = "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01"
FOREIGN = "02:00:00:00:00:99"


# -- frames ------------------------------------------------------------------------------------------------------------
def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def ip(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ether(source: str, target: str, kind: int, body: bytes) -> bytes:
    return mac(target) + mac(source) + struct.pack("!H", kind) + body


def ip4(source: str, target: str, protocol: int, body: bytes) -> bytes:
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0, ip(source), ip(target))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def ip6(source: str, target: str, protocol: int, body: bytes, place: int, hops: int = 255) -> bytes:
    """An IPv6 packet; the checksum of what it carries is put at `place` of its body."""
    pseudo = ip(source) + ip(target) + struct.pack("!II", len(body), protocol)
    body = body[:place] + struct.pack("!H", checksum(pseudo + body)) + body[place + 2 :]
    return struct.pack("!IHBB", 6 << 28, len(body), protocol, hops) + ip(source) + ip(target) + body


def udp(payload: bytes, source: int = 4000, target: int = 7000) -> bytes:
    return struct.pack("!HHHH", source, target, 8 + len(payload), 0) + payload


def icmp(kind: int, body: bytes) -> bytes:
    text = struct.pack("!BBH", kind, 0, 0) + body
    return text[:2] + struct.pack("!H", checksum(text)) + text[4:]


def arp(operation: int, own: str, address: str, target: str, note: bytes, hardware: int = 1) -> bytes:
    head = struct.pack("!HHBBH", hardware, 0x800, 6, 4, operation)
    return head + struct.pack("!6s4s6s4s", mac(own), ip(address), bytes(6), ip(target)) + note


def discovery(kind: int, subject: str, options: bytes = b"") -> bytes:
    """ICMPv6 with four bytes of flags and an address, as neighbour discovery has it."""
    return struct.pack("!BBHI", kind, 0, 0, 0x60000000 if kind == 136 else 0) + ip(subject) + options


def link_option(kind: int, address: str) -> bytes:
    """A link-layer address option of discovery: 1 the source's, 2 the target's."""
    return bytes((kind, 1)) + mac(address)


NONCE = bytes((14, 1, 1, 2, 3, 4, 5, 6))


def frames(own: str, other: str, link: str, other_link: str) -> dict[str, tuple[bool, bytes]]:
    """Return frames of pod-a, whose MAC is `own`, to pod-b: whether each may arrive, and its bytes with its name in it."""
    all_nodes = "ff02::1"

    def note(name: str) -> bytes:
        return f"<{name}>".encode()

    def to_b(name: str, packet: bytes, kind: int = 0x800, source: str = own) -> bytes:
        return ether(source, other, kind, packet)

    def six(name: str, source: str, target: str, how: str = "udp") -> bytes:
        return ip6(source, target, 17, udp(note(name)), 6)

    def multicast(name: str, packet: bytes) -> bytes:
        # What follows the packet is padding of the frame.
        return ether(own, ALL_NODES, 0x86DD, packet + note(name))

    def nd(name: str, kind: int, source: str, subject: str, options: bytes = b"", hops: int = 255) -> bytes:
        return multicast(name, ip6(source, all_nodes, 58, discovery(kind, subject, options), 2, hops))

    def nd_behind(made: bytes) -> bytes:
        """Discovery behind an extension header: options for the destination, padding alone."""
        bare, options = ip6(A6, all_nodes, 58, made, 2), bytes((58, 0, 1, 4, 0, 0, 0, 0))
        head = struct.pack("!IHBB", 6 << 28, len(made) + len(options), 60, 255)
        return multicast("advert-behind-options", head + bare[8:40] + options + bare[40:])

    made: dict[str, tuple[bool, bytes]] = {}

    def case(name: str, allowed: bool, frame: bytes) -> None:
        made[name] = (allowed, frame)

    case("own-ipv4", True, to_b("", ip4(A, B, 17, udp(note("own-ipv4")))))
    case("foreign-mac", False, to_b("", ip4(A, B, 17, udp(note("foreign-mac"))), source=FOREIGN))
    case("foreign-ipv4", False, to_b("", ip4("10.244.1.77", B, 17, udp(note("foreign-ipv4")))))
    case("gateway-ipv4", False, to_b("", ip4(GATEWAY, B, 17, udp(note("gateway-ipv4")))))
    case("outside-ipv4", False, to_b("", ip4("192.168.77.2", B, 17, udp(note("outside-ipv4")))))
    case("own-ipv6", True, to_b("", six("own-ipv6", A6, B6), 0x86DD))
    case("foreign-ipv6", False, to_b("", six("foreign-ipv6", "fd00:244:1::77", B6), 0x86DD))
    case("link-local-udp", False, to_b("", six("link-local-udp", link, other_link), 0x86DD))
    case("to-link-local", False, to_b("", six("to-link-local", A6, other_link), 0x86DD))
    case("own-arp", True, ether(own, BROADCAST, 0x806, arp(2, own, A, B, note("own-arp"))))
    case("own-gratuitous-arp", True, ether(own, BROADCAST, 0x806, arp(1, own, A, A, note("own-gratuitous-arp"))))
    case("arp-probe", True, ether(own, BROADCAST, 0x806, arp(1, own, "0.0.0.0", A, note("arp-probe"))))
    for name, frame in {
        "arp-probe-of-another": arp(1, own, "0.0.0.0", C, b""),
        "arp-answer": arp(2, own, GATEWAY, B, b""),
        "arp-question": arp(1, own, GATEWAY, B, b""),
        "arp-other-mac": arp(2, FOREIGN, A, B, b""),
        "gratuitous-arp": arp(1, own, C, C, b""),
        "arp-of-nobody": arp(2, own, "0.0.0.0", B, b""),
        "arp-of-ieee802": arp(2, own, GATEWAY, B, b"", 6),
        "arp-of-ieee802-mac": arp(2, FOREIGN, A, B, b"", 6),
        "inverse-arp": arp(8, own, A, B, b""),
    }.items():
        case(name, False, ether(own, BROADCAST, 0x806, frame + note(name)))
    case("own-advert", True, nd("own-advert", 136, A6, A6, link_option(2, own)))
    case("advert-without-option", True, nd("advert-without-option", 136, A6, A6))
    case("advert-with-less-hops", False, nd("advert-with-less-hops", 136, A6, A6, hops=64))
    case("advert-of-other-mac", False, nd("advert-of-other-mac", 136, A6, A6, link_option(2, FOREIGN)))
    second = NONCE + link_option(2, FOREIGN)
    case("advert-of-second-option", False, nd("advert-of-second-option", 136, A6, A6, second))
    case("advert-of-another", False, nd("advert-of-another", 136, A6, GATEWAY6, link_option(2, own)))
    case("advert-by-another", False, nd("advert-by-another", 136, GATEWAY6, GATEWAY6))
    case("advert-by-nobody", False, nd("advert-by-nobody", 136, "::", A6))
    case("advert-behind-options", False, nd_behind(discovery(136, GATEWAY6, link_option(2, own))))
    case("own-solicit", True, nd("own-solicit", 135, link, B6, link_option(1, own)))
    case("solicit-of-other-mac", False, nd("solicit-of-other-mac", 135, link, B6, link_option(1, FOREIGN)))
    case("solicit-with-less-hops", False, nd("solicit-with-less-hops", 135, link, B6, hops=64))
    case("dad", True, nd("dad", 135, "::", A6))
    case("dad-with-nonce", True, nd("dad-with-nonce", 135, "::", A6, NONCE))
    case("dad-of-link-local", True, nd("dad-of-link-local", 135, "::", link))
    case("dad-of-another", False, nd("dad-of-another", 135, "::", C6))
    case("dad-of-another-link", False, nd("dad-of-another-link", 135, "::", other_link))
    case("router-solicit", True, multicast("router-solicit", ip6(link, all_nodes, 58, b"\x85" + bytes(7), 2)))
    asked = b"\x85" + bytes(7) + link_option(1, FOREIGN)
    case(
        "router-solicit-of-other-mac", False, multicast("router-solicit-of-other-mac", ip6(A6, all_nodes, 58, asked, 2))
    )
    case("router-advert", False, nd("router-advert", 134, link, "::"))
    case("redirect-ipv6", False, nd("redirect-ipv6", 137, link, "::"))
    case("redirect-ipv4", False, to_b("", ip4(A, B, 1, icmp(5, ip(A) + note("redirect-ipv4")))))
    case("router-advert-ipv4", False, to_b("", ip4(A, B, 1, icmp(9, ip(A) + note("router-advert-ipv4")))))
    case("dhcp-answer", False, to_b("", ip4(A, B, 17, udp(note("dhcp-answer"), 67, 68))))
    case("dhcp-answer-by-any-port", False, to_b("", ip4(A, B, 17, udp(note("dhcp-answer-by-any-port"), 4000, 68))))
    case("dhcpv6-answer", False, to_b("", ip6(A6, B6, 17, udp(note("dhcpv6-answer"), 547, 546), 6), 0x86DD))
    tagged = struct.pack("!HH", 5, 0x800) + ip4(A, B, 17, udp(note("tagged")))
    case("tagged", False, ether(own, other, 0x8100, tagged))
    for name, tag in {"tagged-priority-alone": (0x8100, 0), "tagged-twice": (0x88A8, 5)}.items():
        body = struct.pack("!HH", 0, 0x800) + ip4("10.244.1.77", B, 17, udp(note(name)))
        double = struct.pack("!HH", tag[1], 0x8100) + body
        case(name, False, ether(own, other, tag[0], double if tag[1] else body))
    case("strange-protocol", False, ether(own, other, 0x88B5, note("strange-protocol")))
    return made


SEND = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0))\n"
    "for line in sys.stdin: s.send(bytes.fromhex(line.strip()))\n"
)
HEAR = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3)); s.bind(('eth0', 0))\n"
    "out = open(sys.argv[1], 'w'); print('listening', file=out, flush=True)\n"
    "while True:\n"
    "    data, where = s.recvfrom(2048)\n"
    "    if where[2] == 4: continue\n"
    "    print(data.hex(), file=out, flush=True)\n"
)


# -- the site ----------------------------------------------------------------------------------------------------------
def device(namespace: Namespace, name: str = "eth0") -> tuple[str, str]:
    """Return a device's MAC and link-local address."""
    (found,) = json.loads(namespace.run("ip", "-j", "address", "show", "dev", name))
    return found["address"], next(a["local"] for a in found["addr_info"] if a["scope"] == "link")


def write_result(site: Site, port: str, pod: Namespace, *addresses: str, annotation: str = "") -> None:
    """Write what libcni keeps of a pod, as Go writes it: "<" as six characters."""
    interfaces = [{"name": "cni0"}, {"name": port}, {"name": "eth0", "mac": device(pod)[0], "sandbox": str(pod.path)}]
    ips = [{"address": each, "gateway": GATEWAY6 if ":" in each else GATEWAY} for each in addresses]
    result = {"cniVersion": "0.4.0", "interfaces": interfaces, "ips": ips}
    folder = Path(site.config.pod_network.cni_results_dir)
    folder.mkdir(exist_ok=True)
    annotations = {"io.kubernetes.cri.pod-annotations": {"x": annotation}}
    cached = {"kind": "cniCacheV1", "networkName": "wherry", "capabilityArgs": annotations, "result": result}
    (folder / f"wherry-{port}-eth0").write_text(json.dumps(cached).replace("<", "\\u003c"))


def prepare(site: Site) -> None:
    """Give the site IPv6 too, and write the pods' results."""
    site.node.run("ip", "address", "add", f"{GATEWAY6}/64", "dev", "cni0", "nodad")
    for (name, namespace), address in zip(site.pods.items(), (A6, B6), strict=True):
        namespace.run("ip", "address", "add", f"{address}/64", "dev", "eth0", "nodad")
        namespace.run("ip", "-6", "route", "add", "default", "via", GATEWAY6)
        write_result(site, name, namespace, f"{PODS[name]}/24", f"{address}/64")


def ready_file(site: Site, *ports: str) -> bool:
    table = site.node.run("nft", "list", "table", "bridge", "wherry-sources", check=False)
    return "prerouting" in table and all(f'"{port}"' in table for port in ports)


def arrived(site: Site) -> set[str]:
    """Send every frame from pod-a; return the names of those that pod-b heard."""
    sender, receiver = site.pods.values()
    own, link = device(sender)
    other, other_link = device(receiver)
    honest = ether(own, other, 0x800, ip4(A, B, 17, udp(b"<last>")))
    made = {name: frame for name, (_, frame) in frames(own, other, link, other_link).items()}
    return heard_of(site, sender, made, honest)


def heard_of(
    site: Site, sender: Namespace, made: dict[str, bytes], honest: bytes, witness: Namespace | None = None
) -> set[str]:
    """Send frames and, until it is heard, one that may pass (the witness does); return the names of those that pod-b heard."""
    receiver = site.pods["pod-b"]
    heard = site.folder / f"heard-{time.monotonic()}"
    process = receiver.start(sys.executable, "-I", "-c", HEAR, str(heard))
    deadline = time.monotonic() + 30
    while not heard.exists() or "listening" not in heard.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # The last one says that all before it have come or will not.
    lines, last = [frame.hex() for frame in made.values()], honest.hex()
    sender.run(sys.executable, "-I", "-c", SEND, input="\n".join(lines))
    witness = witness or sender
    witness.run(sys.executable, "-I", "-c", SEND, input=last)
    while last not in heard.read_text().split():
        assert time.monotonic() < deadline, "not even an honest frame arrives"
        time.sleep(0.1)
        witness.run(sys.executable, "-I", "-c", SEND, input=last)
    process.kill()
    received = [bytes.fromhex(line) for line in heard.read_text().split()[1:]]
    return {name for name, frame in made.items() if any(is_of(name, frame, each) for each in received)}


def is_of(name: str, frame: bytes, received: bytes) -> bool:
    """Tell whether one frame came of another: the kernel takes tags away, and padding behind a packet."""
    return f"<{name}>".encode() in received or (len(received) > 34 and frame.startswith(received))


def expected() -> set[str]:
    zero = "00:00:00:00:00:00"
    return {name for name, (allowed, _) in frames(zero, zero, "fe80::1", "fe80::2").items() if allowed}


@contextlib.contextmanager
def third_pod(site: Site) -> Iterator[Namespace]:
    with namespaces(f"{site.node.name}-c") as (namespace,):
        wire(site.node, "pod-c", namespace, "eth0")
        site.node.run("ip", "link", "set", "pod-c", "master", "cni0")
        namespace.run("ip", "address", "add", f"{C}/24", "dev", "eth0")
        namespace.run("ip", "route", "add", "default", "via", GATEWAY)
        yield namespace


def spoken_to_all(site: Site, target: str) -> set[str]:
    """Send to a broadcast or multicast address from pod-a; return what pod-b heard."""
    sender, receiver = site.pods.values()
    own, other = device(sender)[0], device(receiver)[0]
    if ":" in target:
        frame = ether(own, BROADCAST, 0x86DD, ip6(A6, target, 17, udp(b"<all>"), 6))
    else:
        frame = ether(own, BROADCAST, 0x800, ip4(A, target, 17, udp(b"<all>")))
    last = ether(own, other, 0x800, ip4(A, B, 17, udp(b"<last>")))
    return heard_of(site, sender, {"all": frame, "last": last}, last)


# -- tests -------------------------------------------------------------------------------------------------------------
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
    """Nor as the gateway, neither while the role runs nor after it has ended."""
    a, b = site.pods.values()

    def strangers(pod: Namespace) -> tuple[set[str], set[str]]:
        """Return the frames that passed, and those that may."""
        (own, link), (other, _), (known, known_link) = device(pod), device(b), device(a)

        def note(name: str) -> bytes:
            return f"<{name}>".encode()

        def six(name: str, source: str) -> bytes:
            return ether(own, other, 0x86DD, ip6(source, B6, 17, udp(note(name)), 6))

        def four(name: str, source: str, sender: str = own) -> bytes:
            return ether(sender, other, 0x800, ip4(source, B, 17, udp(note(name))))

        def said(name: str, operation: int, sender: str, address: str, target: str) -> bytes:
            return ether(own, BROADCAST, 0x806, arp(operation, sender, address, target, note(name)))

        def nd(kind: int, source: str, subject: str) -> bytes:
            return ether(own, ALL_NODES, 0x86DD, ip6(source, "ff02::1", 58, discovery(kind, subject), 2))

        allowed = {
            "own4": four("own4", C),
            "own6": six("own6", C6),
            "own-arp": said("own-arp", 1, own, C, C),
            "own-probe": said("own-probe", 1, own, "0.0.0.0", C),
            "question": said("question", 1, own, C, A),
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
            "arp": said("arp", 2, own, A, B),
            "arp-gateway": said("arp-gateway", 2, own, GATEWAY, B),
            "arp-mac": said("arp-mac", 2, known, C, B),
            "probe": said("probe", 1, own, "0.0.0.0", A),
            "dad-of-pod": nd(135, "::", A6),
            "dad-of-link-local": nd(135, "::", known_link),
            "advert-of-pod": nd(136, C6, A6),
            "advert-of-gateway": nd(136, C6, GATEWAY6),
        }
        return heard_of(site, pod, allowed | forbidden, four("last", C)), set(allowed)

    async def check() -> None:
        async with running(site.config, populated()):
            await until(lambda: ready_file(site, *PODS), "the pods are guarded")
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
            # ICMP that belongs to no connection that the node tracks is dropped as invalid in any case.
            everything = set(frames(zero, zero, "fe80::1", "fe80::2")) - {"redirect-ipv4", "router-advert-ipv4"}
            assert await asyncio.to_thread(arrived, site) == everything

    prepare(site)
    site.node.inside(check)


@pytest.mark.parametrize("site", ["nftables"], indirect=True)
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
            assert heard == (set() if guard else set(made) - {"policy4"})

    prepare(site)
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
