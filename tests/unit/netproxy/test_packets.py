"""One table of Services and packets (tests/support/packet_cases.py), run against the model and what each mode makes of it."""

import dataclasses

import msgspec
import pytest

from netproxy.iptables import backend as iptables_sync
from netproxy.iptables.backend import IPTablesBackend
from netproxy.model import plan_service
from netproxy.nftables.backend import NFTablesBackend
from netproxy.settings import FixedChainSettings, RuleSettings
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.nft_in_memory import RecordingWriter as NftRecordingWriter
from tests.support.nft_tracer import TableTracer
from tests.support.packet_case import (
    BOTH,
    BOTH_SNAT,
    ELSEWHERE,
    HERE,
    IP,
    NODE,
    NODE_VIEW,
    POD,
    PODS,
    THERE,
    THERE_ADDRESS,
    WORLD,
    Case,
    to,
)
from tests.support.packet_cases import CASES, FIXED, RULES
from tests.support.packet_host_ports import HOST_PORT_POD, add_host_ports, free_for_host_ports
from tests.support.packet_tracer import Host, Packet, RuleTracer, trace_model
from tests.support.second_family import likeness
from tests.support.services import port, service, slice_of

SIX = [likeness(case) for case in CASES]


@pytest.mark.parametrize("case", SIX, ids=lambda case: case.name)
async def test_the_table_holds_in_ipv6(case: Case) -> None:
    ports = plan_service(case.service, case.slices, NODE_VIEW, (6,))
    rules, fixed = likeness(RULES), likeness(FIXED)
    iptables, nftables = RecordingWriter(), NftRecordingWriter()
    await IPTablesBackend(iptables, rules, fixed).start({"default/x": ports})
    await NFTablesBackend(nftables, rules, fixed).start({"default/x": ports})
    for packet, expected in case.packets.items():
        if packet.destination == "::1":
            continue  # node ports on localhost are a matter of IPv4
        if not any(packet.source == each.ip for one in ports for each in one.endpoints):
            model = trace_model(
                list(ports), packet, host=case.host, pods=rules.local_cidrs[0], service_range=fixed.service_cidrs[0]
            )
            assert model == expected, packet
        assert RuleTracer(iptables.tables, case.host).trace(packet) == expected, packet
        assert TableTracer(nftables.contents, case.host).trace(packet) == expected, packet


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_host_ports_take_nothing_that_is_for_a_service(case: Case, mode: str) -> None:
    ports = plan_service(case.service, case.slices, NODE_VIEW)
    iptables, nftables = RecordingWriter(), NftRecordingWriter()
    await IPTablesBackend(iptables, RULES, FIXED).start({"default/x": ports})
    await NFTablesBackend(nftables, RULES, FIXED).start({"default/x": ports})
    add_host_ports(iptables.tables)
    tracer: RuleTracer | TableTracer = RuleTracer(iptables.tables, case.host)
    if mode == "nftables":
        tracer = TableTracer(nftables.contents, case.host, HOST_PORT_POD)
    for packet, expected in case.packets.items():
        if mode == "nftables" and packet.destination == "127.0.0.1":
            continue  # node ports on localhost are a matter of the iptables mode
        if not free_for_host_ports(case, ports, packet):
            assert tracer.trace(packet) == expected, packet
    assert tracer.trace(Packet(WORLD, NODE, 9)).endpoints == {HOST_PORT_POD}


@pytest.mark.parametrize(("cidrs", "served"), [((), True), (("192.168.0.0/24",), True), (("10.0.0.0/8",), False)])
async def test_node_ports_are_served_on_the_addresses_named(cidrs: tuple[str, ...], served: bool) -> None:
    fixed = dataclasses.replace(FIXED, node_port_cidrs=cidrs)
    made = service("web", IP, port("http", 80, node_port=30080), type="NodePort")
    services = {"default/x": plan_service(made, [slice_of("web", HERE, THERE)], NODE_VIEW)}
    iptables, nftables = RecordingWriter(), NftRecordingWriter()
    await IPTablesBackend(iptables, RULES, fixed).start(services)
    await NFTablesBackend(nftables, RULES, fixed).start(services)
    for tracer in (RuleTracer(iptables.tables), TableTracer(nftables.contents)):
        assert tracer.trace(Packet(WORLD, NODE, 30080)) == (BOTH_SNAT if served else to(f"{NODE}:30080"))
        assert tracer.trace(Packet(POD, IP, 80)) == BOTH


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_pods_may_be_detected_by_the_nodes_pod_range(case: Case) -> None:
    """The detection mode NodeCIDR."""
    services = {"default/x": plan_service(case.service, case.slices, NODE_VIEW)}
    iptables, nftables = RecordingWriter(), NftRecordingWriter()
    for backend in (
        IPTablesBackend(iptables, dataclasses.replace(RULES, local_cidrs=()), FIXED),
        NFTablesBackend(nftables, dataclasses.replace(RULES, local_cidrs=()), FIXED),
    ):
        await backend.start(services)
        await backend.set_local_cidrs(("10.244.1.0/24",), services)
    for packet, expected in case.packets.items():
        if packet.source == ELSEWHERE:
            continue  # with these settings, pods of other nodes count as outside
        assert RuleTracer(iptables.tables, case.host).trace(packet) == expected, packet
        if packet.destination != "127.0.0.1":
            assert TableTracer(nftables.contents, case.host).trace(packet) == expected, packet


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_model_routes_packets_as_the_table_specifies(case: Case) -> None:
    ports = plan_service(case.service, case.slices, NODE_VIEW)
    for packet, expected in case.packets.items():
        if not any(packet.source == each.ip for one in ports for each in one.endpoints):  # hairpin is the backend's
            assert trace_model(list(ports), packet, host=case.host, pods=PODS) == expected, packet


@pytest.mark.parametrize("rules", [RULES, dataclasses.replace(RULES, lean=True)], ids=["readable", "lean"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_iptables_routes_packets_as_the_table_specifies(case: Case, rules: RuleSettings) -> None:
    writer = RecordingWriter()
    writer.copies_whole_table = rules.lean
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iptables_sync, "MANY_ENDPOINTS", -1)
        backend = IPTablesBackend(writer, rules, FIXED)
        await backend.start({"default/x": plan_service(case.service, case.slices, NODE_VIEW)})
    if rules.lean:
        assert "--comment" not in str(writer.tables["nat"]["KUBE-SERVICES"][:-1])
    tracer = RuleTracer(writer.tables, case.host)
    for packet, expected in case.packets.items():
        assert tracer.trace(packet) == expected, packet


@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_nftables_routes_packets_as_the_table_specifies(case: Case, affinity: str) -> None:
    changed = msgspec.structs.replace(
        case.service, spec=msgspec.structs.replace(case.service.spec, session_affinity=affinity)
    )
    writer = NftRecordingWriter()
    await NFTablesBackend(writer, RULES, FIXED).start({"default/x": plan_service(changed, case.slices, NODE_VIEW)})
    tracer = TableTracer(writer.contents, case.host)
    for packet, expected in case.packets.items():
        if packet.destination != "127.0.0.1":  # node ports on localhost are a matter of the iptables mode
            assert tracer.trace(packet) == expected, packet


@pytest.mark.parametrize("interface", ["cni0", "cni+"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_pods_may_be_detected_by_the_input_interface(case: Case, interface: str) -> None:
    """The detection modes BridgeInterface and InterfaceNamePrefix lead packets as the ranges do."""
    rules = RuleSettings(local_interface=interface, node_addresses=(NODE,))
    services = {"default/x": plan_service(case.service, case.slices, NODE_VIEW)}
    iptables, nftables = RecordingWriter(), NftRecordingWriter()
    await IPTablesBackend(iptables, rules, FIXED).start(services)
    await NFTablesBackend(nftables, rules, FIXED).start(services)
    for packet, expected in case.packets.items():
        if packet.source == ELSEWHERE:
            continue  # with these settings, pods of other nodes count as outside
        assert RuleTracer(iptables.tables, case.host).trace(packet) == expected, packet
        if packet.destination != "127.0.0.1":
            assert TableTracer(nftables.contents, case.host).trace(packet) == expected, packet


async def test_with_masquerade_all_pods_are_masqueraded_too() -> None:
    rules = RuleSettings(local_cidrs=(PODS,), masquerade_all=True)
    services = {"default/x": plan_service(service("web", IP), [slice_of("web", HERE, THERE)], NODE_VIEW)}
    iptables, nftables = RecordingWriter(), NftRecordingWriter()
    await IPTablesBackend(iptables, rules, FIXED).start(services)
    await NFTablesBackend(nftables, rules, FIXED).start(services)
    for tracer in (RuleTracer(iptables.tables), TableTracer(nftables.contents)):
        assert tracer.trace(Packet(POD, IP, 80)) == BOTH_SNAT


async def test_the_rules_balance_evenly() -> None:
    """Multiply the chances along the chain: each of n endpoints gets 1/n, to the kernel's precision."""
    addresses = [f"10.244.1.{number}" for number in range(2, 9)]
    (planned,) = plan_service(service("web", IP), [slice_of("web", *addresses)])
    writer = RecordingWriter()
    backend = IPTablesBackend(writer, RuleSettings(local_cidrs=(PODS,)), FixedChainSettings())
    await backend.start({"default/web": (planned,)})
    chain = next(rules for name, rules in writer.tables["nat"].items() if name.startswith("KUBE-SVC-"))
    left, shares = 1.0, []
    for rule in chain[1:]:
        words = rule.split()
        chance = float(words[words.index("--probability") + 1]) if "--probability" in words else 1.0
        shares.append(left * chance)
        left *= 1 - chance
    assert len(shares) == 7
    assert all(abs(share - 1 / 7) < 1e-8 for share in shares)


async def test_a_remembered_client_goes_to_its_endpoint() -> None:
    (planned,) = plan_service(service("web", IP, session_affinity="ClientIP"), [slice_of("web", HERE, THERE)])
    writer = RecordingWriter()
    backend = IPTablesBackend(writer, RuleSettings(local_cidrs=(PODS,)), FixedChainSettings())
    await backend.start({"default/web": (planned,)})
    chains = writer.tables["nat"]
    there = next(name for name, rules in chains.items() if name.startswith("KUBE-SEP-") and "10.244.2.2" in rules[0])
    known = Host(remembered=frozenset({(there, POD)}))
    assert RuleTracer(writer.tables, known).trace(Packet(POD, IP, 80)) == to(THERE_ADDRESS)
    assert RuleTracer(writer.tables).trace(Packet(POD, IP, 80)) == BOTH
    assert any("--seconds 10800" in rule for rules in chains.values() for rule in rules)
