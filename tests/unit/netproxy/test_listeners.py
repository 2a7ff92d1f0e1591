"""Load balancers at the node's own address leave ports to the programs that listen on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.api import core_v1
from netproxy.endpoints import NodeView
from netproxy.listeners import Listeners, read_listeners
from netproxy.service_table import PortInUse, ServiceTable
from tests.support.clock import settle
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


async def test_only_the_port_at_the_nodes_own_address_is_left_to_the_program() -> None:
    table = ServiceTable(NodeView("node-1"))
    for each in (balanced(), balanced("other", OWN, number=8080), service("inner", "10.96.5.3")):
        table.set_service(f"default/{each.metadata.name}", each)
    assert not table.has_load_balancer_here
    table.set_own_addresses(frozenset({OWN}))
    assert table.has_load_balancer_here and table.load_balancer_here_dirty
    await table.take_changes()
    assert not table.load_balancer_here_dirty
    everywhere = Listeners(frozenset({("TCP", "0.0.0.0", 80)}))
    assert table.set_listeners(everywhere) == [PortInUse("default/web", OWN, "TCP", 80)]
    assert table.set_listeners(everywhere) == []
    assert {key: [p.load_balancer_ips for p in ports] for key, ports in (await table.take_changes()).items()} == {
        "default/web": [(OTHER,)]
    }
    assert table.set_listeners(Listeners()) == []
    assert [p.load_balancer_ips for p in (await table.take_changes())["default/web"]] == [(OWN, OTHER)]
    table.set_listeners(everywhere)
    table.delete_service("default/web")
    assert table.set_listeners(everywhere) == []
    assert await table.take_changes() == {"default/web": ()}


class CountedPorts(list[core_v1.ServicePort]):
    """Ports that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[core_v1.ServicePort]:
        self.reads += 1
        return super().__iter__()


async def test_a_change_of_listeners_does_not_read_the_ports_of_all_load_balancers() -> None:
    table = ServiceTable(NodeView("node-1"))
    table.set_own_addresses(frozenset({OWN}))
    counted = []
    for name in ("web", "other"):
        made = balanced(name)
        made.spec.ports = ports = CountedPorts(port(f"p{number}", number) for number in range(1000, 1100))
        counted.append(ports)
        table.set_service(f"default/{name}", made)
    reads = [ports.reads for ports in counted]
    found = table.set_listeners(Listeners(frozenset({("TCP", "::", 1005), ("UDP", "::", 1006), ("TCP", OTHER, 1007)})))
    assert found == [PortInUse(f"default/{name}", OWN, "TCP", 1005) for name in ("other", "web")]
    assert [ports.reads for ports in counted] == reads
    made = balanced("web", number=1007)
    table.set_service("default/web", made)
    assert table.set_listeners(Listeners(frozenset({("TCP", "::", 1005), ("TCP", "::", 1007)}))) == [
        PortInUse("default/other", OWN, "TCP", 1007),
        PortInUse("default/web", OWN, "TCP", 1007),
    ]
    for name in ("web", "other"):
        table.delete_service(f"default/{name}")
    assert table._by_balancer_port == {}


async def test_a_listening_program_keeps_its_port_and_an_event_reports_it() -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    found, reported = [Listeners(frozenset({("TCP", "::", 80)}))], list[str]()
    api.put(slice_of("web", "10.244.1.2"))
    api.put(slice_of("other", "10.244.1.3"))
    async with proxying(
        api,
        writer,
        read_listeners=lambda: found[0],
        on_port_in_use=lambda service, taken: reported.append(f"{service.metadata.name}: {taken}"),
    ) as proxy:
        proxy.changes.set_own_addresses(frozenset({OWN}))

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
        found[0] = Listeners(frozenset({("TCP", OWN, 8080)}))
        await proxy.verify()
        await settle(60)
        assert served("web") == (OWN,) and served("other") == ()
        assert reported[1:] == [f"other: port 8080/TCP at {OWN} is in use by a program"]
