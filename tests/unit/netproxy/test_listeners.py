"""Load balancers at the node's own address leave ports to the programs that listen on them."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from kube.api import core_v1
from netproxy import listeners, netlink, port_checks, socket_lookup
from netproxy.balancer_ports import PortInUse
from netproxy.endpoints import NodeView
from netproxy.listeners import Listeners, Socket, read_listeners
from netproxy.service_table import ServiceTable
from tests.support.clock import FakeClock, settle
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.memory_api import MemoryAPI
from tests.support.services import port, service, slice_of
from tests.unit.netproxy.test_proxy import proxying

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
OWN, OTHER = "192.168.0.1", "192.168.0.2"


def line(local: str, state: str, peer: str = "00000000:0000") -> str:
    return f"   0: {local} {peer} {state} 00000000:00000000 00:00000000 00000000     0        0 1150 1 0 100 0 0 10 0\n"


def lists(folder: Path, **lines: list[str]) -> Path:
    for name, found in lines.items():
        (folder / name).write_text(HEAD + "".join(found))
    return folder


@pytest.mark.skipif("sys.byteorder != 'little'", reason="the lists are written as little-endian machines do")
def test_the_kernels_lists_are_read(tmp_path: Path) -> None:
    folder = lists(
        tmp_path,
        tcp=[line("00000000:0016", "0A"), line("0100007F:1538", "0A"), line("0100A8C0:C350", "01")],
        tcp6=[line("00000000000000000000000000000000:0050", "0A"), line("0000000000000000FFFF00000100A8C0:0051", "0A")],
        udp=[line("0100A8C0:0035", "07"), line("0100A8C0:9C40", "01", "08080808:0035")],
    )
    assert read_listeners(folder).sockets == {
        ("TCP", "0.0.0.0", 22),
        ("TCP", "127.0.0.1", 5432),
        ("TCP", "::", 80),
        ("TCP", "192.168.0.1", 81),
        ("UDP", "192.168.0.1", 53),
    }


def test_the_list_of_connections_is_not_read_to_its_end(tmp_path: Path) -> None:
    folder = lists(
        tmp_path, tcp=[line("00000000:0016", "0A"), line("0100A8C0:0017", "01"), line("00000000:0018", "0A")]
    )
    assert {number for _, _, number in read_listeners(folder).sockets} == {22}


def test_a_list_that_cannot_be_read_is_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tcp").write_text(HEAD + "nonsense\n")
    (tmp_path / "udp").mkdir()
    assert read_listeners(tmp_path) == Listeners()
    assert caplog.text.count("cannot be read from") == 2


@pytest.mark.parametrize(
    ("sockets", "address", "on"),
    [
        ({("TCP", "0.0.0.0", 80)}, OWN, True),
        ({("TCP", "::", 80)}, OWN, True),
        ({("TCP", OWN, 80)}, OWN, True),
        ({("TCP", "::", 80)}, "fd99::1", True),
        ({("TCP", "fd99::1", 80)}, "fd99::1", True),
        ({("TCP", "0.0.0.0", 80)}, "fd99::1", False),
        ({("TCP", "127.0.0.1", 80)}, OWN, False),
        ({("TCP", OTHER, 80)}, OWN, False),
        ({("UDP", "0.0.0.0", 80)}, OWN, False),
        ({("TCP", "0.0.0.0", 81)}, OWN, False),
    ],
)
def test_a_socket_counts_where_its_packets_arrive(sockets: set[tuple[str, str, int]], address: str, on: bool) -> None:
    assert (("TCP", 80) in Listeners(frozenset(sockets)).ports_at(address)) is on


def balanced(name: str = "web", *addresses: str, number: int = 80) -> core_v1.Service:
    ip = "10.96.5.1" if name == "web" else "10.96.5.2"
    return service(name, ip, port("http", number), type="LoadBalancer", ingress=addresses or (OWN, OTHER))


WEB, OTHERS = Socket(OWN, "TCP", 80), Socket(OWN, "TCP", 8080)


def in_use(*sockets: Socket) -> frozenset[Socket]:
    return frozenset(sockets)


async def served(table: ServiceTable) -> dict[str, list[tuple[str, ...]]]:
    return {key: [p.load_balancer_ips for p in ports] for key, ports in (await table.take_changes()).items()}


async def test_only_ports_that_are_known_to_be_free_are_served_at_the_nodes_own_address() -> None:
    table = ServiceTable(NodeView("node-1"))
    for each in (balanced(), balanced("other", OWN, number=8080), service("inner", "10.96.5.3")):
        table.set_service(f"default/{each.metadata.name}", each)
    await table.take_changes()
    table.set_own_addresses(frozenset({OWN}))
    assert set(table.balancer_ports.unknown) == set(table.balancer_ports.sockets) == {WEB, OTHERS}
    assert await served(table) == {"default/web": [(OTHER,)], "default/other": [()]}
    assert table.set_in_use(in_use(WEB, OTHERS), in_use(WEB)) == [PortInUse("default/web", OWN, "TCP", 80)]
    assert not table.balancer_ports.unknown
    assert await served(table) == {"default/other": [(OWN,)]}
    assert table.set_in_use(in_use(WEB, OTHERS), in_use(WEB)) == [] and not table.dirty
    assert table.set_in_use(in_use(WEB), in_use()) == []
    assert await served(table) == {"default/web": [(OWN, OTHER)]}
    assert table.set_in_use(in_use(WEB), in_use(WEB)) == [PortInUse("default/web", OWN, "TCP", 80)]
    assert await served(table) == {"default/web": [(OTHER,)]}
    table.delete_service("default/web")
    assert table.set_in_use(in_use(WEB), in_use(WEB)) == []
    assert await table.take_changes() == {"default/web": ()}
    table.set_service("default/web", balanced())
    assert set(table.balancer_ports.unknown) == {WEB}
    table.set_own_addresses(frozenset())
    assert not table.balancer_ports.sockets and not table.balancer_ports.unknown
    assert await served(table) == {"default/web": [(OWN, OTHER)], "default/other": [(OWN,)]}


async def test_an_address_is_compared_in_its_canonical_form() -> None:
    table = ServiceTable(NodeView("node-1"))
    table.set_own_addresses(frozenset({OWN}))
    table.set_service("default/web", balanced("web", "192.168.000.1"))
    assert set(table.balancer_ports.unknown) == {WEB}
    assert await served(table) == {"default/web": [()]}


async def test_two_services_of_one_port_are_both_left_to_the_program() -> None:
    table = ServiceTable(NodeView("node-1"))
    table.set_own_addresses(frozenset({OWN}))
    for name in ("web", "other"):
        table.set_service(f"default/{name}", balanced(name))
    found = table.set_in_use(in_use(WEB), in_use(WEB))
    assert found == [PortInUse(f"default/{name}", OWN, "TCP", 80) for name in ("other", "web")]
    table.delete_service("default/web")
    assert table.set_in_use(in_use(WEB), in_use()) == [] and await served(table) == {
        "default/web": [],
        "default/other": [(OWN, OTHER)],
    }


class CountedPorts(list[core_v1.ServicePort]):
    """Ports that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[core_v1.ServicePort]:
        self.reads += 1
        return super().__iter__()


async def test_a_check_does_not_read_the_ports_of_all_load_balancers() -> None:
    table = ServiceTable(NodeView("node-1"))
    table.set_own_addresses(frozenset({OWN}))
    counted = []
    for name in ("web", "other"):
        made = balanced(name)
        made.spec.ports = ports = CountedPorts(port(f"p{number}", number) for number in range(1000, 1100))
        counted.append(ports)
        table.set_service(f"default/{name}", made)
    reads = [ports.reads for ports in counted]
    table.set_in_use(frozenset(table.balancer_ports.sockets), in_use(Socket(OWN, "TCP", 1005)))
    assert [ports.reads for ports in counted] == reads


class Programs:
    """Programs of the node that listen, and the lookups of them; one waits while `blocked`."""

    def __init__(self, *sockets: Socket) -> None:
        self.sockets, self.lookups = frozenset(sockets), list[frozenset[Socket]]()
        self.free = asyncio.Event()
        self.free.set()
        self.error: OSError | None = None

    async def find(self, sockets: Collection[Socket]) -> frozenset[Socket]:
        self.lookups.append(frozenset(sockets))
        await self.free.wait()
        if self.error is not None:
            raise self.error
        return self.sockets & frozenset(sockets)


async def test_a_listening_program_keeps_its_port_and_an_event_reports_it() -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    programs, reported = Programs(WEB), list[str]()
    api.put(slice_of("web", "10.244.1.2"))
    api.put(slice_of("other", "10.244.1.3"))
    async with proxying(
        api,
        writer,
        find_ports_in_use=programs.find,
        on_port_in_use=lambda service, taken: reported.append(f"{service.metadata.name}: {taken}"),
    ) as proxy:
        proxy.changes.set_own_addresses(frozenset({OWN}))
        await proxy.verify()
        assert programs.lookups == [], "nothing is looked up without such a load balancer"

        def served(name: str) -> tuple[str, ...]:
            return proxy.ports[f"default/{name}"][0].load_balancer_ips

        # One that comes later is not in force for a moment even.
        api.put(balanced("web", OWN))
        api.put(balanced("other", OWN, number=8080))
        await settle(60)
        assert served("web") == () and served("other") == (OWN,)
        assert OWN not in "".join(
            text for text in writer.applied if "default/web" in text and "default/other" not in text
        )
        assert reported == [f"web: port 80/TCP at {OWN} is in use by a program"]
        # The program ends, and another one begins on the other's port.
        programs.sockets = in_use(OTHERS)
        async with asyncio.timeout(10):
            while served("web") != (OWN,) or served("other") != ():
                await proxy.verify()  # no more often than in some durations of a check
                await asyncio.sleep(0.005)
        assert reported[1:] == [f"other: port 8080/TCP at {OWN} is in use by a program"]
        # A change of a Service whose ports are known costs no lookup.
        before = len(programs.lookups)
        api.put(slice_of("web", "10.244.1.9"))
        await settle(60)
        assert len(programs.lookups) == before


async def test_a_lookup_that_takes_long_delays_changes_once_and_leaves_what_is_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(port_checks, "LIMIT", 0.01)
    api, writer, programs = MemoryAPI(), RecordingWriter(), Programs()
    for name in ("web", "other"):
        api.put(slice_of(name, "10.244.1.2"))
    async with proxying(api, writer, find_ports_in_use=programs.find) as proxy:

        async def until(*expected: tuple[str, ...]) -> None:
            async with asyncio.timeout(10):
                while [ports[0].load_balancer_ips for _, ports in sorted(proxy.ports.items()) if ports] != list(
                    expected
                ):
                    await asyncio.sleep(0.005)

        proxy.changes.set_own_addresses(frozenset({OWN}))
        api.put(balanced("web", OWN))
        await until((OWN,))
        programs.free.clear()
        api.put(balanced("other", OWN, number=8080))
        await until((), (OWN,))
        assert [set(each) for each in programs.lookups] == [{WEB}, {OTHERS}]
        # Others are served meanwhile, and the kernel gets no second request.
        api.put(service("third", "10.96.5.7", port("http", 80)))
        await until((), (), (OWN,))
        await proxy.verify()
        assert len(programs.lookups) == 2 and caplog.text.count("the kernel takes long") == 1
        programs.free.set()
        await until((OWN,), (), (OWN,))


async def test_what_the_kernel_does_not_answer_stays_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    api, writer, programs, clock = MemoryAPI(), RecordingWriter(), Programs(), FakeClock()
    for name in ("web", "other"):
        api.put(slice_of(name, "10.244.1.2"))
    async with proxying(api, writer, find_ports_in_use=programs.find, clock=clock) as proxy:
        proxy.changes.set_own_addresses(frozenset({OWN}))
        api.put(balanced("web", OWN))
        await settle(60)
        programs.error = OSError("no buffer space")
        api.put(balanced("other", OWN, number=8080))
        await settle(60)
        for _ in range(3):
            await proxy.verify()
            await settle(60)
        served = {key: ports[0].load_balancer_ips for key, ports in proxy.ports.items()}
        assert served == {"default/web": (OWN,), "default/other": ()}
        assert caplog.text.count("no buffer space") == 1
        programs.error = None
        await proxy.verify()
        await settle(60)
        assert proxy.ports["default/other"][0].load_balancer_ips == (OWN,)


async def test_many_ports_are_looked_up_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of each take the event loop a moment: nothing limits the ports of a Service."""
    monkeypatch.setattr(port_checks, "PORTION", 100)
    table, programs = ServiceTable(NodeView("node-1")), Programs(Socket(OWN, "TCP", 1007), Socket(OWN, "TCP", 1204))
    made = balanced("web", OWN)
    made.spec.ports = [port(f"p{number}", number) for number in range(1000, 1250)]
    table.set_own_addresses(frozenset({OWN}))
    table.set_service("default/web", made)
    reported = list[int]()
    checks = port_checks.PortChecks(
        table, programs.find, FakeClock(), lambda taken: reported.append(taken.port), lambda: None
    )
    await checks.check_new()
    assert [len(each) for each in programs.lookups] == [100, 100, 50] and not table.balancer_ports.unknown
    assert sorted(reported) == [1007, 1204]


async def test_a_check_of_all_ports_that_takes_long_is_made_less_often() -> None:
    clock, table, lookups = FakeClock(), ServiceTable(NodeView("node-1")), list[float]()
    table.set_own_addresses(frozenset({OWN}))
    table.set_service("default/web", balanced("web", OWN))

    async def find(sockets: Collection[Socket]) -> frozenset[Socket]:
        lookups.append(clock.monotonic())
        await clock.advance(0.5)
        return frozenset()

    checks = port_checks.PortChecks(table, find, clock, lambda taken: None, lambda: None)
    for _ in range(5):
        await checks.check_all()
        await clock.advance(5)
    assert [moment - lookups[0] for moment in lookups] == [0, 10.5, 21]


class Kernel:
    """A netlink socket that answers each request by what `answer` returns for its body: an error's number, 0 for a socket."""

    def __init__(self, answer: Callable[[bytes], int]) -> None:
        self._answer, self._answers, self.sends = answer, list[bytes](), 0

    def send(self, data: bytes) -> None:
        self.sends += 1
        for message in netlink.messages(data):
            code = self._answer(message.body)
            kind, body = (2, struct.pack("=i", -code)) if code else (20, bytes(72))
            self._answers.append(struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body)

    def recv(self, size: int) -> bytes:
        return self._answers.pop(0)


def test_each_port_is_one_request_in_batches() -> None:
    queries = [socket_lookup.Query("TCP", OWN, number) for number in range(1, 201)]
    kernel = Kernel(lambda body: 0 if body[8:10] == (22).to_bytes(2, "big") else errno.ENOENT)
    assert socket_lookup.taken(kernel, queries) == {queries[21]}  # type: ignore[arg-type]
    assert kernel.sends == 4
    with pytest.raises(OSError, match="memory"):
        socket_lookup.taken(Kernel(lambda body: errno.ENOMEM), queries)  # type: ignore[arg-type]


@pytest.mark.skipif("sys.byteorder != 'little'", reason="the lists are written as little-endian machines do")
def test_lists_are_read_where_the_kernel_has_no_sock_diag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_lookup, "is_supported", lambda protocol: protocol != "UDP")
    monkeypatch.setattr("netproxy.rtnetlink_tables.devices_of", lambda route, wanted: {OWN: [3, 4]})
    lists(tmp_path, tcp=[line("00000000:0016", "0A")], udp=[line("0100A8C0:0035", "07")])
    bodies: list[bytes] = []

    def answer(body: bytes) -> int:
        bodies.append(body)
        return errno.ENOENT

    asked = [Socket(OWN, "TCP", 22), Socket(OWN, "UDP", 53), Socket(OWN, "SCTP", 1), Socket("node-1", "TCP", 1)]
    found = listeners.find(asked, Kernel(answer), None, tmp_path)  # type: ignore[arg-type]
    assert found == {asked[1]}
    assert [struct.unpack_from("=I", body, 44)[0] for body in bodies] == [3, 4], "one lookup for each device"


def test_few_lines_of_a_list_are_read(tmp_path: Path) -> None:
    lists(tmp_path, udp=[line(f"0100A8C0:{number:04X}", "07") for number in range(1, 6001)])
    assert len(read_listeners(tmp_path).sockets) == 4096
