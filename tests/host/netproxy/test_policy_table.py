"""The network policies' table (tests/support/policy_cases.py) as real packets, made by hand and looked for all around.

Each packet is sent twice: by its sender, so that the node forwards it, and by the node from its sender's address, so that it
passes hook `output` alone. The latter is how packets leave IPVS, which few kernels have (tests/vm/test_ipvs.py's has).
"""

import contextlib
import itertools
import os
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from netproxy.nft.writer import NftWriter
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.ruleset import TABLE
from netproxy.sysctl import ensure
from tests.support.netns import Namespace, namespaces, wire
from tests.support.packet_probe import crc32c
from tests.support.policies import policy
from tests.support.policy_cases import CASES
from tests.support.policy_tables import DB, EVERYBODY, GROUP, OTHER, PODS, WEB, filled, made
from tests.support.second_family import likeness

HERE = (WEB, DB, OTHER)
NUMBERS = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1}


@contextlib.contextmanager
def place() -> Iterator[tuple[Namespace, dict[str, Namespace]]]:
    """A node with three pods on its bridge; whatever else sends or gets is "beyond" its uplink."""
    tag = f"np-y{os.getpid()}"
    with namespaces(*(f"{tag}-{name}" for name in ("node", "web", "db", "other", "beyond"))) as (node, *others):
        node.run("ip", "link", "add", "cni0", "type", "bridge")
        node.run("ip", "address", "add", "10.244.1.1/24", "dev", "cni0")
        node.run("ip", "link", "set", "cni0", "up")
        for ip, namespace in zip(HERE, others, strict=False):
            wire(node, f"v{ip[-1]}", namespace, "eth0")
            node.run("ip", "link", "set", f"v{ip[-1]}", "master", "cni0")
            namespace.run("ip", "address", "add", f"{ip}/24", "dev", "eth0")
            namespace.run("ip", "route", "add", "default", "via", "10.244.1.1")
        beyond = others[-1]
        wire(node, "uplink", beyond, "eth0")
        node.run("ip", "address", "add", "192.168.0.1/24", "dev", "uplink")
        beyond.run("ip", "address", "add", "192.168.0.2/24", "dev", "eth0")
        node.run("ip", "route", "add", "default", "via", "192.168.0.2")
        beyond.run("ip", "route", "add", "default", "via", "192.168.0.1")
        yield node, {**dict(zip(HERE, others, strict=False)), "beyond": beyond}


def packet(source: str, destination: str, port: int, protocol: str, mark: int) -> bytes:
    """Return the first packet of a connection, whole but for IP's own checksum, which the kernel puts in."""
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    if protocol == "icmp":
        body = bytearray(struct.pack("!BBHHH", 8, 0, 0, mark, 1))
        struct.pack_into("!H", body, 2, _sum(bytes(body)))
    elif protocol == "sctp":
        head, chunk = struct.pack("!HHI", mark, port, 0), struct.pack("!BBHIIHHI", 1, 0, 20, 0x1234, 65535, 1, 1, 7)
        body = bytearray(head + struct.pack("<I", crc32c(head + bytes(4) + chunk)) + chunk)
    else:
        where = 6 if protocol == "udp" else 16
        udp, tcp = struct.pack("!HHHH", mark, port, 8, 0), struct.pack("!HHIIBBHHH", mark, port, 1, 0, 80, 2, 9, 0, 0)
        form = udp if protocol == "udp" else tcp
        body = bytearray(form)
        struct.pack_into("!H", body, where, _sum(ends + struct.pack("!HH", NUMBERS[protocol], len(body)) + bytes(body)))
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, NUMBERS[protocol], 0) + ends + bytes(body)


def _sum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def marks(sock: socket.socket) -> set[int]:
    """Return the marks of the packets that have come in since the last look."""
    found = set()
    with contextlib.suppress(BlockingIOError):
        while True:
            data, (_, _, kind, *_) = sock.recvfrom(2000)
            start = 14 + (data[14] & 15) * 4
            if kind != socket.PACKET_OUTGOING and len(data) >= start + 6:
                (mark,) = struct.unpack_from("!H", data, start + (4 if data[23] == 1 else 0))
                found.add(mark)
    return found


def test_real_packets_pass_or_not_as_the_table_specifies() -> None:
    numbers = itertools.count(20000)
    wrong: list[str] = []
    with place() as (node, around), contextlib.ExitStack() as stack:

        async def listening() -> socket.socket:
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
            sock.setblocking(False)
            return sock

        async def sending() -> socket.socket:
            sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            return sock

        heard = {name: stack.enter_context(each.inside(listening)) for name, each in around.items()}
        spoken = {name: stack.enter_context(each.inside(sending)) for name, each in {**around, "node": node}.items()}
        backend = PolicyBackend(NftWriter(4, TABLE), 4)

        async def begin() -> None:
            ensure("net/ipv4/ip_forward", "1")
            ensure("net/bridge/bridge-nf-call-iptables", "1")

        node.inside(begin)
        for name, policies, allowed, refused in CASES:
            node.inside(lambda policies=policies: backend.put(made(filled(*policies))))  # type: ignore[misc]
            sent: dict[int, tuple[str, bool]] = {}
            for passes, packets in ((False, refused), (True, allowed)):
                for source, destination, port, *more in packets:
                    if len(more) > 1:
                        continue  # it belongs to a connection that is not there
                    for sender in (source if source in around else "beyond", "node"):
                        if source == destination and sender != "node":
                            continue  # it does not leave the pod
                        if destination in (EVERYBODY, GROUP) and sender == "node":
                            continue  # IPVS sends to endpoints alone
                        mark = next(numbers)
                        sent[mark] = f"{name}: {source} to {destination} {port} {more} sent by {sender}", passes
                        data = packet(source, destination, port, more[0] if more else "tcp", mark)
                        with contextlib.suppress(PermissionError):  # what is dropped at hook `output`
                            spoken[sender].sendto(data, (destination, 0))
            arrived: set[int] = set()
            wanted = {mark for mark, (_, passes) in sent.items() if passes}
            deadline = time.monotonic() + 60
            while not wanted <= arrived and time.monotonic() < deadline:
                time.sleep(0.01)
                for sock in heard.values():
                    arrived |= marks(sock)
            time.sleep(0.05)
            for sock in heard.values():
                arrived |= marks(sock)
            for mark, (text, passes) in sent.items():
                if (mark in arrived) != passes:
                    wrong.append(f"{text} {'does not pass' if passes else 'passes'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("isolated", [False, True])
def test_an_isolated_pod_gets_no_multicast_of_other_pods_in_ipv6(isolated: bool) -> None:
    async def datagrams(address: str = "::") -> socket.socket:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.settimeout(30)
        sock.bind((address, 9999))
        return sock

    async def begin() -> None:
        ensure("net/ipv6/conf/all/forwarding", "1")
        ensure("net/bridge/bridge-nf-call-ip6tables", "1")
        policies = [policy("in", podSelector={} if isolated else {"matchLabels": {"app": "nobody"}})]
        await PolicyBackend(NftWriter(6, TABLE), 6).put(made(filled(*policies, pods=likeness(PODS)), 6))

    with place() as (node, around), contextlib.ExitStack() as stack:
        for namespace, ip in ((node, "10.244.1.1"), (around[WEB], WEB), (around[OTHER], OTHER)):
            device = "cni0" if namespace is node else "eth0"
            namespace.run("ip", "address", "add", f"{likeness(ip)}/96", "dev", device, "nodad")
        node.inside(begin)
        receiver = stack.enter_context(around[WEB].inside(datagrams))
        sender = stack.enter_context(around[OTHER].inside(lambda: datagrams(likeness(OTHER))))
        last = stack.enter_context(node.inside(datagrams))
        sender.sendto(b"to everybody", ("ff02::1", 9999))
        last.sendto(b"from the node", (likeness(WEB), 9999))
        seen = [receiver.recv(100)]
        while seen[-1] != b"from the node":
            seen.append(receiver.recv(100))
        assert (b"to everybody" in seen) != isolated


def test_discovery_passes_on_the_bridge_alone_and_from_no_router() -> None:
    """Hop limit 255 is a neighbour's (RFC 4861): a router, the node too, passes on less."""
    number, target = itertools.count(), socket.inet_pton(socket.AF_INET6, likeness(DB))

    async def begin() -> None:
        ensure("net/ipv6/conf/all/forwarding", "1")
        ensure("net/bridge/bridge-nf-call-ip6tables", "1")
        table = filled(
            policy("out", podSelector={"matchLabels": {"app": "web"}}, policyTypes=["Egress"]), pods=likeness(PODS)
        )
        await PolicyBackend(NftWriter(6, TABLE), 6).put(made(table, 6))

    async def raw() -> socket.socket:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        sock.settimeout(30)
        return sock

    with place() as (node, around), contextlib.ExitStack() as stack:
        for namespace, ip in ((node, "10.244.1.1"), *((around[each], each) for each in (WEB, DB))):
            device = "cni0" if namespace is node else "eth0"
            namespace.run("ip", "address", "add", f"{likeness(ip)}/96", "dev", device, "nodad")
        for namespace, ip, device in ((node, "192.168.0.1", "uplink"), (around["beyond"], "192.168.0.2", "eth0")):
            namespace.run("ip", "address", "add", f"{likeness(ip)}/96", "dev", device, "nodad")
        for each in (WEB, DB):
            around[each].run("ip", "route", "add", "default", "via", likeness("10.244.1.1"))
        node.inside(begin)
        sockets = {name: stack.enter_context(around[name].inside(raw)) for name in (WEB, DB, "beyond")}

        def heard(receiver: str, hops: int, kind: int = 135) -> bool:
            """Return whether a message of WEB's arrives before one of the same way that is let through."""
            note = b"note %d" % next(number)
            where = likeness("192.168.0.2" if receiver == "beyond" else receiver)
            sockets[WEB].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
            sockets[WEB].sendto(bytes((kind,)) + bytes(7) + target + note, (where, 0))
            sender = node.inside(raw)
            with sender:
                sender.sendto(bytes((128,)) + bytes(7) + b"end " + note, (where, 0))
            arrived = False
            while not (data := sockets[receiver].recv(1000)).endswith(b"end " + note):
                arrived |= data.endswith(note)
            return arrived

        assert heard(DB, 255)
        assert not heard(DB, 64)
        for kind in (133, 134, 135, 136):
            assert not heard("beyond", 64, kind)
            assert not heard("beyond", 255, kind)
