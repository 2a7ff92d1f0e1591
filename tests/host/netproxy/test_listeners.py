"""Lookups of the ports that programs listen on, by the kernel's own sockets."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from netproxy import listeners, netlink
from netproxy.listeners import Socket
from tests.support.netns import Namespace, namespaces

OWN, OWN_6, OTHER = "10.9.0.1", "fd09::1", "10.9.0.2"
MANY = 3000


@pytest.fixture
def node() -> Iterator[Namespace]:
    with namespaces(f"np-{os.getpid()}-ports") as (made,):
        made.run("ip", "link", "set", "lo", "up")
        for name, addresses in (("d0", (f"{OWN}/24", f"{OTHER}/24", f"{OWN_6}/64")), ("d1", ())):
            made.run("ip", "link", "add", name, "type", "bridge")
            made.run("ip", "link", "set", name, "up")
            for address in addresses:
                made.run("ip", "address", "add", address, "dev", name, *(["nodad"] if ":" in address else []))
        yield made


def program(
    protocol: str,
    address: str,
    port: int,
    *,
    only_6: bool = False,
    device: str = "",
    peer: tuple[str, int] | None = None,
) -> socket.socket:
    """Return a socket as a program that listens has it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_6)
    if device:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    made.bind((address, port))
    if peer is not None:
        made.connect(peer)
    elif protocol == "TCP":
        made.listen()
    return made


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
@pytest.mark.parametrize("lists", [False, True], ids=["sock_diag", "lists"])
def test_a_program_is_found_where_its_packets_arrive(
    node: Namespace, protocol: str, lists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lists:
        monkeypatch.setattr("netproxy.socket_lookup.is_supported", lambda protocol: False)
    other = "UDP" if protocol == "TCP" else "TCP"

    async def check() -> None:
        with ExitStack() as opened:
            for made in (
                program(protocol, "0.0.0.0", 1001),
                program(protocol, OWN, 1002),
                program(protocol, OTHER, 1003),
                program(protocol, "127.0.0.1", 1004),
                program(protocol, "::", 1005),
                program(protocol, OWN_6, 1006),
                program(protocol, f"::ffff:{OWN}", 1007),
                program(protocol, OWN, 1008, device="d0"),
                program("UDP", OWN, 1009, peer=(OTHER, 53)),
            ):
                opened.enter_context(made)
            asked = {
                Socket(address, each, port)
                for address in (OWN, OWN_6)
                for each in (protocol, other, "SCTP")
                for port in range(1000, 1010)
            }
            found = await listeners.in_use(asked)
            expected = {(OWN, port) for port in (1001, 1002, 1005, 1007, 1008)} | {(OWN_6, 1005), (OWN_6, 1006)}
            assert found == {Socket(address, protocol, port) for address, port in expected}

    node.inside(check)


def test_the_kernel_decides_by_the_options_of_a_socket(node: Namespace) -> None:
    async def check() -> None:
        with program("TCP", "::", 80, only_6=True), program("TCP", "0.0.0.0", 81, device="d1"):
            asked = {Socket(address, "TCP", port) for address in (OWN, OWN_6) for port in (80, 81)}
            assert await listeners.in_use(asked) == {Socket(OWN_6, "TCP", 80)}

    node.inside(check)


class Counted:
    """A netlink socket that counts what is sent and received."""

    calls = 0

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()

    def send(self, data: bytes) -> int:
        Counted.calls += 1
        return self._inner.send(data)

    def recv(self, size: int) -> bytes:
        Counted.calls += 1
        return self._inner.recv(size)


@contextmanager
def many_sockets() -> Iterator[None]:
    """Open UDP sockets, as every account of a node can."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2 * MANY), before[1]))
    try:
        with ExitStack() as opened:
            for port in range(2000, 2000 + MANY):
                opened.enter_context(program("UDP", "0.0.0.0", port))
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_sockets_of_others_cost_nothing(node: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = netlink.connect
    monkeypatch.setattr(netlink, "connect", lambda *args, **options: Counted(connect(*args, **options)))
    monkeypatch.delattr(listeners, "read_listeners")  # nothing is listed
    asked = [Socket(OWN, protocol, port) for protocol in ("TCP", "UDP") for port in (80, 2000)]

    async def calls(expected: set[Socket]) -> int:
        Counted.calls = 0
        assert await listeners.in_use(asked) == expected
        return Counted.calls

    async def check() -> None:
        await calls(set())  # the first one asks the kernel what it has
        before = await calls(set())
        with many_sockets():
            assert await calls({Socket(OWN, "UDP", 2000)}) == before
        assert before <= 10

    node.inside(check)


def test_a_lookup_takes_place_in_the_namespace_of_the_caller(node: Namespace) -> None:
    async def check() -> frozenset[Socket]:
        with program("TCP", "0.0.0.0", 80):
            return await listeners.in_use([Socket(OWN, "TCP", 80)])

    async def closed() -> frozenset[Socket]:
        await asyncio.to_thread(os.getpid)
        return await listeners.in_use([Socket(OWN, "TCP", 80)])

    assert node.inside(check) and not node.inside(closed)
