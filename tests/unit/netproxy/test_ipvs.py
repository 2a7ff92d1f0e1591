"""The IPVS mode: the packet table, deltas, repair, and reading the kernel's own file. No kernel takes part here."""

import asyncio
import dataclasses
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kube.process import CommandError, Result
from netproxy import netlink
from netproxy.config import IPVSConfig
from netproxy.errors import WriteError, WriteTimeout
from netproxy.iptables.backend import IPTablesBackend
from netproxy.ipvs import kernel as ipvs_kernel
from netproxy.ipvs import kernel_requests
from netproxy.ipvs.backend import IPVSBackend
from netproxy.ipvs.kernel import DEVICE, RealKernel, parse_servers
from netproxy.ipvs.state import Server, ServerConfig
from netproxy.model import ServicePort, plan_service
from netproxy.settings import FixedChainSettings, RuleSettings
from tests.support.churn import Churn
from tests.support.clock import FakeClock, settle
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.ipvs import IPVSTracer, MemoryKernel
from tests.support.packet_case import IP, NODE, NODE_VIEW, POD, WORLD, Case
from tests.support.packet_cases import CASES, FIXED, IPVS_OTHERWISE, RULES
from tests.support.packet_host_ports import HOST_PORT_POD, add_host_ports, free_for_host_ports
from tests.support.packet_tracer import REJECT, Packet
from tests.support.services import endpoint, port, service, slice_of


def backend(kernel: MemoryKernel, writer: RecordingWriter, clock: FakeClock | None = None) -> IPVSBackend:
    return IPVSBackend(kernel, writer, RULES, FIXED, clock=clock or FakeClock())


def web(*endpoints: str, **spec: object) -> tuple[ServicePort, ...]:
    return plan_service(service("web", IP, **spec), [slice_of("web", *endpoints)], NODE_VIEW)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_virtual_servers_route_packets_as_the_table_specifies(case: Case) -> None:
    kernel, writer = MemoryKernel(), RecordingWriter()
    await backend(kernel, writer).start({"default/x": plan_service(case.service, case.slices, NODE_VIEW)})
    tracer = IPVSTracer(writer.tables, case.host, kernel=kernel)
    for packet, expected in case.packets.items():
        if packet.destination == "127.0.0.1":  # node ports on localhost are a matter of the iptables mode
            continue
        assert tracer.trace(packet) == IPVS_OTHERWISE.get(case.name, {}).get(packet, expected), packet


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_host_ports_take_nothing_that_is_for_a_service(case: Case) -> None:
    kernel, writer = MemoryKernel(), RecordingWriter()
    ports = plan_service(case.service, case.slices, NODE_VIEW)
    await backend(kernel, writer).start({"default/x": ports})
    tracer = IPVSTracer(writer.tables, case.host, kernel=kernel)
    packets = {packet: tracer.trace(packet) for packet in case.packets if not free_for_host_ports(case, ports, packet)}
    add_host_ports(writer.tables)
    assert {packet: tracer.trace(packet) for packet in packets} == packets
    assert tracer.trace(Packet(WORLD, NODE, 9)).endpoints == {HOST_PORT_POD}
    # A port of its address that the Service does not have: the address is local.
    assert not ports or tracer.trace(Packet(POD, IP, 9)).verdict == REJECT


async def test_a_change_names_only_what_changed() -> None:
    kernel, writer = MemoryKernel(), RecordingWriter()
    proxy = backend(kernel, writer)
    await proxy.start({"default/web": web("10.244.1.2")})
    kernel.changes.clear()
    written = len(writer.applied)
    await proxy.apply({"default/web": web("10.244.1.2", "10.244.1.3")})
    assert kernel.changes == [f"-a -t {IP}:80 -r 10.244.1.3:8080 -m -w 1"]
    await proxy.apply({"default/web": web("10.244.1.2", "10.244.1.3", session_affinity="ClientIP")})
    assert kernel.changes[1:] == [f"-E -t {IP}:80 -s rr -p 10800"]
    assert len(writer.applied) == written  # the chains are fixed


async def test_an_endpoint_that_is_gone_keeps_its_connections_until_they_end() -> None:
    kernel, clock = MemoryKernel(), FakeClock()
    proxy = backend(kernel, RecordingWriter(), clock)
    await proxy.start({"default/web": web("10.244.1.2", "10.244.1.3")})
    server, gone = Server("tcp", IP, 80), "10.244.1.3:8080"
    await proxy.apply({"default/web": web("10.244.1.2")})
    assert kernel.table.draining == {(server, gone): 1}
    await proxy.verify()
    assert (server, gone) in kernel.table.draining
    await proxy.apply({"default/web": web("10.244.1.2", "10.244.1.3")})  # back again before its end
    assert kernel.table.draining == {}
    assert gone in kernel.table.servers[server].endpoints
    await proxy.apply({"default/web": web("10.244.1.2")})
    kernel.table.draining[server, gone] = 0
    await proxy.verify()
    assert kernel.table.draining == {}
    await proxy.apply({"default/web": web()})
    await clock.advance(1000)
    await proxy.verify()
    await clock.advance(1000)
    await proxy.verify()
    assert kernel.table.draining == {}  # one that never ends is given up


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (IPVSConfig("mh"), "-s mh -b mh-port"),  # as upstream's
        (IPVSConfig("mh", ("mh-fallback", "mh-port")), "-s mh -b mh-fallback,mh-port"),
        (IPVSConfig("sh", ("sh-fallback",)), "-s sh -b sh-fallback"),
        (IPVSConfig("wlc"), "-s wlc"),
    ],
)
async def test_hashing_schedulers_get_their_flags_also_over_those_of_an_earlier_life(
    config: IPVSConfig, line: str
) -> None:
    kernel, writer = MemoryKernel(), RecordingWriter()
    for verb in ("-A", "-E" if config.scheduler in ("mh", "sh") else ""):
        kernel.changes.clear()
        proxy = IPVSBackend(kernel, writer, RULES, FIXED, config=config, clock=FakeClock())
        await proxy.start({"default/web": web("10.244.1.2")})
        heads = [each for each in kernel.changes if each[:2] in ("-A", "-E")]
        assert heads == ([f"{verb} -t {IP}:80 {line}"] if verb else [])
    assert not await proxy.verify()


class Waiting(MemoryKernel):
    """Blocks one change of sets or virtual servers, the next after `hold`, until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.hold, self.go_on = False, asyncio.Event()

    async def change_sets(self, text: str) -> None:
        await self._wait()
        await super().change_sets(text)

    async def change_servers(self, text: str) -> None:
        await self._wait()
        await super().change_servers(text)

    async def _wait(self) -> None:
        if self.hold:
            self.hold = False
            await self.go_on.wait()


async def test_a_look_beside_a_change_repairs_nothing_of_it() -> None:
    kernel, clock = Waiting(), FakeClock()
    proxy = backend(kernel, RecordingWriter(), clock)
    await proxy.start({})
    kernel.changes.clear()
    kernel.hold = True
    change = asyncio.create_task(proxy.apply({"default/web": web("10.244.1.2")}))
    await settle(20)
    await clock.advance(1000)
    look = asyncio.create_task(proxy.verify())
    await settle(20)
    kernel.go_on.set()
    await change
    assert not await look
    assert len(kernel.changes) == len(set(kernel.changes)) == 2  # a virtual server and its endpoint
    assert not await proxy.verify()


async def test_an_endpoint_that_comes_back_while_it_is_removed_stays() -> None:
    kernel, server, again = Waiting(), Server("tcp", IP, 80), "10.244.1.3:8080"
    proxy = backend(kernel, RecordingWriter())
    await proxy.start({"default/web": web("10.244.1.2", "10.244.1.3")})
    await proxy.apply({"default/web": web("10.244.1.2")})
    kernel.table.draining[server, again] = 0
    kernel.hold = True
    look = asyncio.create_task(proxy.verify())
    await settle(20)
    change = asyncio.create_task(proxy.apply({"default/web": web("10.244.1.2", "10.244.1.3")}))
    await settle(20)
    kernel.go_on.set()
    await asyncio.gather(look, change)
    assert not look.result()  # it was not gone in between
    assert again in kernel.table.servers[server].endpoints and not kernel.table.draining


@pytest.mark.parametrize("seed", range(4))
async def test_after_any_sequence_of_changes_deltas_equal_a_fresh_start(seed: int) -> None:
    churn, kernel, writer = Churn(seed), MemoryKernel(), RecordingWriter()
    proxy = backend(kernel, writer)
    await proxy.start({})
    for _ in range(120):
        churn.step()
        await proxy.apply(await churn.table.take_changes())
    fresh = MemoryKernel()
    await backend(fresh, RecordingWriter()).start(await churn.plan())
    assert kernel.table.servers == fresh.table.servers
    assert (kernel.held, kernel.bound) == (fresh.held, fresh.bound)


async def test_what_others_remove_is_put_back_and_their_virtual_servers_stay() -> None:
    kernel, writer, clock = MemoryKernel(), RecordingWriter(), FakeClock()
    theirs = Server("tcp", "203.0.113.200", 80)
    kernel.table.servers[theirs] = ServerConfig("wlc", 0, frozenset())
    proxy = backend(kernel, writer, clock)
    await proxy.start({"default/web": web("10.244.1.2")})
    whole = (await kernel.servers()).servers
    assert theirs in whole
    del kernel.table.servers[Server("tcp", IP, 80)]
    await clock.advance(5)
    assert await proxy.verify()
    assert (await kernel.servers()).servers == whole
    kernel.held.clear()
    kernel.bound.clear()
    await clock.advance(30)
    assert await proxy.verify()
    assert ("KUBE-CLUSTER-IP", f"{IP},tcp:80") in kernel.held
    assert kernel.bound == {IP}
    assert not await proxy.verify()


async def test_virtual_servers_in_excluded_ranges_stay_and_ours_there_are_still_kept() -> None:
    kernel, clock = MemoryKernel(), FakeClock()
    theirs = Server("tcp", NODE, 9999)
    kernel.table.servers[theirs] = ServerConfig("wlc", 0, frozenset())
    config = IPVSConfig(exclude_cidrs=("192.168.0.0/24", "fd00::/8"))
    proxy = IPVSBackend(kernel, RecordingWriter(), RULES, FIXED, config=config, clock=clock)
    made = service("web", IP, port("http", 80, node_port=30080), type="NodePort")
    await proxy.start({"default/web": plan_service(made, [slice_of("web", "10.244.1.2")], NODE_VIEW)})
    await clock.advance(60)
    assert not await proxy.verify()
    assert {theirs, Server("tcp", NODE, 30080)} <= kernel.table.servers.keys()
    del kernel.table.servers[Server("tcp", NODE, 30080)]
    assert await proxy.verify()
    assert {theirs, Server("tcp", NODE, 30080)} <= kernel.table.servers.keys()


async def test_a_virtual_server_in_the_service_range_that_lost_its_address_goes_and_others_virtual_servers_stay() -> (
    None
):
    kernel = MemoryKernel()
    left, theirs = Server("tcp", IP, 80), Server("tcp", "192.0.2.7", 80)
    excluded = Server("tcp", "10.96.9.9", 80)
    for server in (left, theirs, excluded):  # of a proxy that was killed between the address and the virtual server
        kernel.table.servers[server] = ServerConfig("rr", 0, frozenset())
    config = IPVSConfig(exclude_cidrs=("10.96.9.0/24",))
    await IPVSBackend(kernel, RecordingWriter(), RULES, FIXED, config=config, clock=FakeClock()).start({})
    assert kernel.table.servers.keys() == {theirs, excluded}


async def test_node_ports_follow_the_nodes_addresses() -> None:
    kernel = MemoryKernel()
    proxy = backend(kernel, RecordingWriter())
    ports = plan_service(
        service("web", IP, port("http", 80, node_port=30080), type="NodePort"),
        [slice_of("web", "10.244.1.2")],
        NODE_VIEW,
    )
    await proxy.start({"default/web": ports})
    assert Server("tcp", NODE, 30080) in kernel.table.servers
    kernel.nodes = {"192.168.0.2"}
    await proxy.verify()
    assert Server("tcp", "192.168.0.2", 30080) in kernel.table.servers
    assert Server("tcp", NODE, 30080) not in kernel.table.servers
    await proxy.change_fixed_chains(dataclasses.replace(FIXED, node_port_cidrs=("10.0.0.0/8",)))
    assert not [server for server in kernel.table.servers if server.port == 30080]


@pytest.mark.parametrize("first", ["ipvs", "iptables"])
async def test_a_switch_between_ipvs_and_iptables_leaves_nothing_of_the_other(first: str) -> None:
    async def start(mode: str, writer: RecordingWriter) -> IPVSBackend | IPTablesBackend:
        made = backend(MemoryKernel(), writer) if mode == "ipvs" else IPTablesBackend(writer, RULES, FIXED)
        await made.start({"default/web": web("10.244.1.2")})
        return made

    second = "iptables" if first == "ipvs" else "ipvs"
    switched, fresh, empty = RecordingWriter(), RecordingWriter(), await RecordingWriter().read()
    await start(first, switched)
    await start(second, switched)
    last = await start(second, fresh)
    assert {
        table: {name: sorted(rules) for name, rules in chains.items()} for table, chains in switched.tables.items()
    } == {table: {name: sorted(rules) for name, rules in chains.items()} for table, chains in fresh.tables.items()}
    await last.cleanup()
    assert await fresh.read() == empty


def test_the_kernels_file_is_read() -> None:
    text = """IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> C0A80001:192B      Masq    1      3          0
  -> C0A80002:192B      Masq    0      2          5
UDP  0A60000A:0035 wrr persistent 10800 FFFFFFFF
TCP  [fd00:0096:0000:0000:0000:0000:0000:0001]:01BB rr
  -> [fd00:0244:0000:0000:0000:0000:0000:0002]:192B      Masq    1      0          0
"""
    found = parse_servers(text, 4)
    api = Server("tcp", "10.96.0.1", 443)
    assert found.servers == {
        api: ServerConfig("rr", 0, frozenset({"192.168.0.1:6443"})),
        Server("udp", "10.96.0.10", 53): ServerConfig("wrr", 10800, frozenset()),
    }
    assert found.draining == {(api, "192.168.0.2:6443"): 7}
    assert parse_servers(text, 6).servers == {
        Server("tcp", "fd00:96::1", 443): ServerConfig("rr", 0, frozenset({"[fd00:244::2]:6443"}))
    }


async def test_ipv6_has_sets_of_its_own() -> None:
    kernel, writer = MemoryKernel(("fd00::1",)), RecordingWriter()
    rules = RuleSettings(family=6, local_cidrs=("fd00:244::/32",))
    proxy = IPVSBackend(kernel, writer, rules, FixedChainSettings(family=6), clock=FakeClock())
    six = service("web", "fd00:96::1", port("http", 80, node_port=30080), type="NodePort")
    made = slice_of("web", endpoint("fd00:244:1::2"), address_type="IPv6")
    await proxy.start({"default/web": plan_service(six, [made], NODE_VIEW, (6,))})
    assert ("KUBE-6-CLUSTER-IP", "fd00:96::1,tcp:80") in kernel.held
    assert "-a -t [fd00:96::1]:80 -r [fd00:244:1::2]:8080 -m -w 1" in kernel.changes
    assert "--match-set KUBE-6-CLUSTER-IP dst,dst" in str(writer.tables)
    assert "--match-set KUBE-CLUSTER-IP" not in str(writer.tables)


async def test_a_refused_change_is_made_up_for() -> None:
    kernel, writer = MemoryKernel(), RecordingWriter()
    proxy = backend(kernel, writer)
    await proxy.start({"default/web": web("10.244.1.2")})
    del kernel.table.servers[Server("tcp", IP, 80)]  # somebody else removed what the change is about to add to
    with pytest.raises(WriteError):
        await kernel.change_servers(f"-a -t {IP}:80 -r 10.244.1.9:8080 -m -w 1\n")
    await proxy.apply({"default/web": web("10.244.1.2", "10.244.1.3")})
    assert kernel.table.servers[Server("tcp", IP, 80)].endpoints == {"10.244.1.2:8080", "10.244.1.3:8080"}


def failing_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each command fail, as with an interrupted dump of the kernel's tables."""

    async def run(argv: Sequence[str], *, check: bool = True, **options: Any) -> Result:
        if check:
            raise CommandError(argv, "exit status 1: Dump terminated")
        return Result(1, "", "Dump terminated")

    monkeypatch.setattr(ipvs_kernel, "run", run)


async def test_addresses_that_cannot_be_listed_are_an_error_and_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_commands(monkeypatch)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, DEVICE)])
    with pytest.raises(WriteError, match="Dump terminated"):
        await RealKernel().node_addresses()
    with pytest.raises(WriteError, match="Dump terminated"):
        await RealKernel().addresses()


async def test_a_device_that_is_not_there_has_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_commands(monkeypatch)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo")])
    assert await RealKernel().addresses() == set()


async def test_a_kernels_file_that_cannot_be_read_is_an_error_and_one_that_is_not_there_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ipvs_kernel, "PROC", tmp_path)
    with pytest.raises(WriteError):
        await RealKernel().servers()
    monkeypatch.setattr(ipvs_kernel, "PROC", tmp_path / "absent")
    assert (await RealKernel().servers()).servers == {}


async def test_virtual_servers_stay_while_addresses_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = MemoryKernel()
    proxy = backend(kernel, RecordingWriter())
    await proxy.start({"default/web": web("10.244.1.2")})
    servers, bound = (await kernel.servers()).servers, set(kernel.bound)
    assert servers and bound

    failing_commands(monkeypatch)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, DEVICE)])
    monkeypatch.setattr(kernel, "node_addresses", RealKernel().node_addresses)
    with pytest.raises(WriteError):
        await proxy.verify()
    assert (await kernel.servers()).servers == servers and kernel.bound == bound


def recorded(command: int, name: bytes, data: str, family: int = 2) -> bytes:
    """Return a request as `ipset restore -exist` sends it, but for the number of the line."""
    body = struct.pack("=BBH", family, 0, 0)
    body += struct.pack("=HHBxxx", 5, 1, 6)  # IPSET_ATTR_PROTOCOL
    body += struct.pack("=HH", 5 + len(name), 2) + name + b"\0" * (1 + -(1 + len(name)) % 4)
    values = bytes.fromhex(data)
    body += struct.pack("=HH", 4 + len(values), 0x8007) + values
    return struct.pack("=IHHII", 16 + len(body), 0x600 | command, 5, 1, 0) + body


ONE, TO = "0c 00 01 80 08 00 01 40 0a 60 05 01", "0c 00 14 80 08 00 01 40 0a f4 01 00"
PORT_80, OF_TCP, OF_UDP = "06 00 04 40 00 50 00 00", "05 00 07 40 06 00 00 00", "05 00 07 40 11 00 00 00"
SIX = "18 00 01 80 14 00 02 40 fd 00 00 96 00 00 00 00 00 00 00 00 00 00 00 01"


@pytest.mark.parametrize(
    ("line", "family", "expected"),
    [
        ("add KUBE-IPVS-IPS 10.96.5.1", 4, recorded(9, b"KUBE-IPVS-IPS", ONE)),
        ("del KUBE-CLUSTER-IP 10.96.5.1,tcp:80", 4, recorded(10, b"KUBE-CLUSTER-IP", ONE + PORT_80 + OF_TCP)),
        ("add KUBE-NODE-PORT-TCP 80", 4, recorded(9, b"KUBE-NODE-PORT-TCP", PORT_80)),
        (
            "add KUBE-LOAD-BALANCER-SOURCE-CIDR 10.96.5.1,udp:80,10.244.1.0/24",
            4,
            recorded(9, b"KUBE-LOAD-BALANCER-SOURCE-CIDR", ONE + PORT_80 + OF_UDP + TO + "05 00 15 40 18 00 00 00"),
        ),
        ("add KUBE-6-IPVS-IPS fd00:96::1", 6, recorded(9, b"KUBE-6-IPVS-IPS", SIX, 10)),
    ],
)
def test_entries_of_sets_are_encoded_as_the_kernel_takes_them(line: str, family: int, expected: bytes) -> None:
    (request,) = kernel_requests.set_requests(line + "\n", family) or []
    assert request.ljust(-(-len(request) // 4) * 4, b"\0") == expected


@pytest.mark.parametrize(
    "text",
    ["create KUBE-IPVS-IPS hash:ip\n", "add OTHER 10.0.0.1\n", "add KUBE-IPVS-IPS 10.0.0.1 extra\n", "text"],
)
def test_other_lines_are_left_to_the_command(text: str) -> None:
    assert kernel_requests.set_requests(text, 4) is None
    many = "add KUBE-IPVS-IPS 10.96.5.1\n" * (kernel_requests.MAX_LINES + 1)
    assert kernel_requests.set_requests(many, 4) is None


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [(OSError(28, "No space left on device"), WriteError), (TimeoutError("timed out"), WriteTimeout)],
)
async def test_a_refused_or_late_netlink_request_is_an_error_of_the_write(
    refusal: OSError, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(netlink, "apply", refuse)
    with pytest.raises(raised):
        await RealKernel().change_sets("add KUBE-IPVS-IPS 10.96.5.1\n")
