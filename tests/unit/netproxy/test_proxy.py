"""The proxy's loop: coalescing, the order of events, what is served here, stale flows, health."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube.api import core_v1, discovery_v1
from kube.clock import SYSTEM
from kube.informer import Informer
from netproxy import conntrack, metrics, reports
from netproxy.conntrack import StaleFlows, stale_flows
from netproxy.drift import DriftDetector
from netproxy.endpoints import NodeView
from netproxy.health import Health
from netproxy.health_check_ports import Check, checks
from netproxy.iptables.backend import IPTablesBackend
from netproxy.model import ServicePort, plan_service
from netproxy.proxy import ServiceProxy
from netproxy.service_table import ServiceTable
from netproxy.settings import FixedChainSettings, RuleSettings
from tests.support.clock import FakeClock, settle
from tests.support.flows import flow
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.memory_api import MemoryAPI
from tests.support.services import endpoint, node, port, service, slice_of


@asynccontextmanager
async def proxying(api: MemoryAPI, writer: RecordingWriter, **options: object) -> AsyncIterator[ServiceProxy]:
    client = api.client()
    services = Informer(client, core_v1.Service)
    slices = Informer(client, discovery_v1.EndpointSlice)
    rules, clock = RuleSettings(local_cidrs=("10.244.0.0/16",)), options.get("clock", SYSTEM)
    backend = IPTablesBackend(writer, rules, FixedChainSettings(), clock=clock)  # type: ignore[arg-type]
    proxy = ServiceProxy(services, slices, [backend], node_name="node-1", **options)  # type: ignore[arg-type]
    tasks = [asyncio.create_task(each) for each in (services.run(), slices.run(), proxy.run())]
    try:
        await proxy.started.wait()
        yield proxy
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_nothing_is_written_before_services_and_slices_are_known() -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    api.put(service("web", "10.96.5.1"))
    api.put(slice_of("web", "10.244.1.2"))
    async with proxying(api, writer):
        assert len(writer.applied) == 1
        assert "has no endpoints" not in writer.applied[0]


def test_addresses_and_ranges_are_served_in_their_canonical_form() -> None:
    given = service(
        "web", "010.96.5.1", type="LoadBalancer", external_ips=["FD00::0:1", "192.0.2.01", "::ffff:192.0.2.2"]
    )
    given.spec.load_balancer_source_ranges = [" 10.0.0.1/8", "010.1.0.0/016", "x", "FD00::/8"]
    given.status.load_balancer = core_v1.LoadBalancerStatus(ingress=[core_v1.LoadBalancerIngress(ip="192.0.02.3")])
    (found,) = plan_service(given, [slice_of("web", "10.244.1.2")], NodeView("node-1"))
    assert (found.cluster_ip, found.external_ips) == ("10.96.5.1", ("192.0.2.1", "192.0.2.2"))
    assert found.load_balancer_ips == ("192.0.2.3",)
    assert found.source_ranges == ("10.0.0.0/8", "10.1.0.0/16")


async def test_changes_of_one_turn_are_written_as_one() -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    async with proxying(api, writer):
        writer.applied.clear()
        for number in range(20):
            api.put(service(f"s{number}", f"10.96.5.{number + 1}"))
            api.put(slice_of(f"s{number}", "10.244.1.2"))
        await settle(60)
        assert len(writer.tables["nat"]["KUBE-SERVICES"]) == 20 + 2
        assert len(writer.applied) <= 2


async def test_the_log_contains_the_changes(caplog: pytest.LogCaptureFixture) -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    caplog.set_level("INFO")
    async with proxying(api, writer):
        caplog.clear()
        web = service("web", "10.96.5.1", port("http", 80), port("", 81))
        api.put(web)
        api.put(slice_of("web", "10.244.1.2", "10.244.1.3"))
        await settle(60)
        api.remove(web)
        await settle(60)
    reported = [record.getMessage() for record in caplog.records if record.name == "netproxy.proxy"]
    assert reported[0].startswith("IPv4, ")
    assert reported[0].endswith("default/web (endpoints of http: 2, 81: 0)")
    assert reported[-1].endswith("default/web (not served)")


def test_the_log_names_few_of_many_ports() -> None:
    ports = plan_service(service("web", "10.96.5.1", *(port(f"p{n}", n) for n in range(1, 9001))), [])
    assert reports.describe({"default/web": ports}, 4) == (
        "default/web (endpoints of p1: 0, p2: 0, p3: 0, p4: 0, p5: 0 and 8995 ports more)"
    )


async def test_the_configured_minimum_time_between_two_writes_is_kept() -> None:
    api, writer, clock = MemoryAPI(), RecordingWriter(), FakeClock()
    async with proxying(api, writer, clock=clock, min_period=10):
        writes = []
        for number in range(3):
            api.put(service(f"s{number}", f"10.96.5.{number + 1}"))
            api.put(slice_of(f"s{number}", "10.244.1.2"))
            await settle(60)
            writes.append(len(writer.applied))
        assert writes == [2, 2, 2]  # the start's and the first; the others wait
        await clock.advance(10)
        await settle(60)
        assert len(writer.applied) == 3
        assert len(writer.tables["nat"]["KUBE-SERVICES"]) == 3 + 2


async def test_a_new_service_and_its_first_slice_are_one_write_though_the_slice_comes_a_moment_later() -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    async with proxying(api, writer):
        writer.applied.clear()
        api.put(service("web", "10.96.5.1", selector={"app": "web"}))
        await settle(60)
        assert writer.applied == []
        api.put(slice_of("web", "10.244.1.2"))
        await settle(60)
        (text,) = writer.applied
        assert "has no endpoints" not in text
        # One that stays without slices is refused by name before long.
        api.put(service("none", "10.96.5.2", selector={"app": "none"}))
        async with asyncio.timeout(5):
            while len(writer.applied) == 1:
                await asyncio.sleep(0.005)
        assert "default/none:http has no endpoints" in writer.applied[1]


async def test_the_address_that_the_node_answers_itself_gets_no_rule() -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    api.put(service("kube-dns", "10.96.0.10", port("dns", 53, "UDP"), namespace="kube-system"))
    async with proxying(api, writer, local_cluster_ips=("10.96.0.10",)):
        assert "10.96.0.10" not in str(writer.tables)


async def test_caches_of_answers_are_notified_of_a_changed_service() -> None:
    reported: list[str] = []
    api, writer = MemoryAPI(), RecordingWriter()
    async with proxying(api, writer, on_change=reported.append):
        api.put(service("web", "10.96.5.1"))
        api.put(slice_of("web", "10.244.1.2"))
        await settle(60)
    assert reported == ["default/web", "default/web"]


async def test_a_slice_that_moves_to_another_service_leaves_the_first() -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    api.put(service("a", "10.96.5.1"))
    api.put(service("b", "10.96.5.2"))
    api.put(slice_of("a", "10.244.1.2", suffix="x"))
    async with proxying(api, writer) as proxy:
        moved = slice_of("a", "10.244.1.2", suffix="x")
        moved.metadata.labels = {"kubernetes.io/service-name": "b"}
        api.put(moved)
        await settle(60)
        assert not proxy.ports["default/a"][0].endpoints
        assert proxy.ports["default/b"][0].endpoints


async def test_only_services_that_a_change_touches_are_planned_again() -> None:
    table = ServiceTable(NodeView("node-1"))
    for number in range(10):
        table.set_service(f"default/s{number}", service(f"s{number}", f"10.96.5.{number + 1}"))
    assert len(await table.take_changes()) == 10
    table.set_slice(slice_of("s3", "10.244.1.2"))
    assert list(await table.take_changes()) == ["default/s3"]
    table.set_node(NodeView("node-1"))
    assert not table.dirty
    table.set_node(NodeView("node-1", "east"))
    assert len(await table.take_changes()) == 10


def test_families_are_kept_apart() -> None:
    both = service("web", "10.96.5.1", ips=["10.96.5.1", "fd00:96::1"])
    slices = [slice_of("web", "10.244.1.2"), slice_of("web", "fd00:244::2", suffix="six", address_type="IPv6")]
    four, six = plan_service(both, slices, families=(4, 6))
    assert (four.cluster_ip, [str(each) for each in four.endpoints]) == ("10.96.5.1", ["10.244.1.2:8080"])
    assert (six.cluster_ip, [str(each) for each in six.endpoints]) == ("fd00:96::1", ["[fd00:244::2]:8080"])
    assert len(plan_service(both, slices, families=(4,))) == 1


def test_stale_flows_are_those_of_lost_endpoints_and_of_a_port_that_gains_its_first() -> None:
    def udp(*endpoints: str, number: int = 53, **spec: Any) -> tuple[ServicePort, ...]:
        slices = [slice_of("dns", *endpoints, ports={"udp": number}, protocol="UDP")] if endpoints else []
        return plan_service(service("dns", "10.96.5.3", port("udp", 53, "UDP"), **spec), slices)

    target = StaleFlows(4, "UDP", "10.96.5.3", 53)
    lost = target._replace(endpoint="10.244.1.2", endpoint_port=53)
    assert stale_flows(udp("10.244.1.2", "10.244.1.3"), udp("10.244.1.3")) == [lost]
    assert stale_flows(udp("10.244.1.2"), udp("10.244.1.2", number=5353)) == [lost], "another target port"
    assert stale_flows(udp(), udp("10.244.1.2")) == [target]
    assert stale_flows(udp("10.244.1.2"), udp("10.244.1.2", "10.244.1.3")) == []
    outside = target._replace(destination="192.0.2.7")
    assert stale_flows(udp("10.244.1.2"), udp("10.244.1.2", external_ips=["192.0.2.7"])) == [outside]
    assert stale_flows(udp("10.244.1.2", external_ips=["192.0.2.7"]), udp("10.244.1.2")) == [
        outside._replace(endpoint="10.244.1.2", endpoint_port=53)
    ]
    tcp = plan_service(service("web", "10.96.5.1"), [slice_of("web", "10.244.1.2")])
    assert stale_flows(tcp, ()) == []


def test_stale_flows_of_an_address_and_port_of_two_services_are_those_that_neither_translates() -> None:
    def udp(name: str, *endpoints: str) -> tuple[ServicePort, ...]:
        slices = [slice_of(name, *endpoints, ports={"udp": 53}, protocol="UDP")] if endpoints else []
        ip = {"one": "10.96.5.3", "two": "10.96.5.4"}[name]
        return plan_service(service(name, ip, port("udp", 53, "UDP"), external_ips=["192.0.2.7"]), slices)

    shared = StaleFlows(4, "UDP", "192.0.2.7", 53)
    led_away = shared._replace(endpoint="10.244.1.2", endpoint_port=53)
    one, two, less = udp("one", "10.244.1.2", "10.244.1.3"), udp("two", "10.244.1.4"), udp("one", "10.244.1.3")
    for old, new in [((*one, *two), (*less, *two)), ((*two, *one), (*two, *less)), ((*one, *two), (*two, *less))]:
        assert led_away in stale_flows(old, new) and len(stale_flows(old, new)) == 2
    first, empty, both = udp("one", "10.244.1.2"), udp("two"), udp("two", "10.244.1.2")
    for old, new in [((*first, *empty), (*first, *both)), ((*empty, *first), (*both, *first))]:
        assert shared not in stale_flows(old, new), "the other Service translated already"
    for old, new in [((*first, *both), (*empty,)), ((*both, *first), (*empty,))]:
        assert led_away in stale_flows(old, new)
    for old, new in [((*first, *both), (*both,)), ((*both, *first), (*both,))]:
        assert led_away not in stale_flows(old, new), "the other Service still has the endpoint"


async def test_a_proxy_that_falls_behind_for_two_minutes_is_unhealthy() -> None:
    clock = FakeClock()
    health = Health(clock)
    health.set_node(node())
    assert not health.healthy  # nothing is in force yet
    health.updated()
    await clock.advance(3600)
    assert health.healthy
    health.queued()
    await clock.advance(119)
    assert health.healthy
    await clock.advance(2)
    assert not health.healthy
    assert not health.live
    health.updated()
    assert health.live


@pytest.mark.parametrize("leaving", ["deleted", "tainted"])
async def test_a_node_that_leaves_drains_its_load_balancers_and_stays_live(leaving: str) -> None:
    health = Health(FakeClock())
    health.updated()
    going = node()
    if leaving == "deleted":
        going.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    else:
        going.spec.taints = [core_v1.Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")]
    health.set_node(going)
    assert health.live
    assert not health.healthy
    assert json.loads(health.body())["nodeEligible"] is False


def test_health_check_node_ports_count_local_ready_addresses_once() -> None:
    web = service(
        "web",
        "10.96.5.1",
        port("http", 80),
        port("https", 443),
        type="LoadBalancer",
        ingress=("203.0.113.9",),
        external_traffic_policy="Local",
        health_check_node_port=31999,
    )
    endpoints = [endpoint("10.244.1.2"), endpoint("10.244.1.3"), endpoint("10.244.2.2", node="node-2")]
    slices = [slice_of("web", *endpoints, ports={"http": 8080, "https": 8443})]
    planned = plan_service(web, slices, NodeView("node-1"))
    assert checks({"default/web": planned}) == {31999: Check("default", "web", 2)}
    web.spec.external_traffic_policy = "Cluster"
    assert checks({"default/web": plan_service(web, slices, NodeView("node-1"))}) == {}


async def test_others_changes_make_everything_due_and_our_own_do_not() -> None:
    clock, state = FakeClock(), [b"1"]
    drift = DriftDetector(lambda: state[0], clock)
    assert drift.comparison_due
    async with drift.writing(1, since=b"1"):
        state[0] = b"2"
    assert not drift.comparison_due
    async with drift.writing(1):
        state[0] = b"3"
    assert not drift.comparison_due
    state[0] = b"4"
    assert drift.comparison_due
    async with drift.writing(1):  # a delta of ours does not hide what others did before it
        state[0] = b"5"
    assert drift.comparison_due
    began = await drift.begin_comparison()
    drift.found_equal(began)
    assert not drift.comparison_due


@pytest.mark.parametrize(
    ("read_at", "before", "transactions", "after", "due"),
    [
        (7, 7, 1, 8, False),
        (7, 7, 2, 9, False),
        (7, 7, 1, 9, True),  # somebody wrote between our transaction and the look at the count
        (7, 8, 1, 9, True),  # or between reading and writing
        (None, 7, 1, 8, True),  # a delta proves nothing where all was suspect
        (0xFFFFFFFF, 0xFFFFFFFF, 1, 0, False),
    ],
)
async def test_what_others_write_just_beside_our_own_is_not_taken_for_ours(
    read_at: int | None, before: int, transactions: int, after: int, due: bool
) -> None:
    state = [before]
    drift = DriftDetector(lambda: state[0].to_bytes(4, "big"), FakeClock())
    since = None if read_at is None else read_at.to_bytes(4, "big")
    async with drift.writing(transactions, since):
        state[0] = after
    assert drift.comparison_due is due


async def test_a_comparison_during_which_something_was_written_proves_nothing() -> None:
    clock, state = FakeClock(), [b"1"]
    drift = DriftDetector(lambda: state[0], clock)
    began = await drift.begin_comparison()
    with pytest.raises(RuntimeError):
        async with drift.writing(1):
            raise RuntimeError("refused")
    drift.found_equal(began)
    assert drift.comparison_due


async def test_a_comparison_takes_at_most_a_twentieth_of_the_time() -> None:
    clock, state = FakeClock(), [b"1"]
    drift = DriftDetector(lambda: state[0], clock)
    began = await drift.begin_comparison()
    await clock.advance(0.5)
    assert drift.finished(began.started) == 0.5
    state[0] = b"2"
    assert not drift.comparison_due
    await clock.advance(9)
    assert not drift.comparison_due
    await clock.advance(1)
    assert drift.comparison_due


async def test_a_comparison_that_takes_long_is_not_put_off_beyond_what_repair_may_take() -> None:
    clock, state = FakeClock(), [b"1"]
    drift = DriftDetector(lambda: state[0], clock)
    began = await drift.begin_comparison()
    await clock.advance(4)
    drift.finished(began.started)
    state[0] = b"2"
    await clock.advance(19)
    assert not drift.comparison_due
    await clock.advance(1)
    assert drift.comparison_due


async def test_what_follows_a_write_is_tried_again_with_each_verification() -> None:
    """A port of a health check that another process had is opened when it is free."""
    api, received = MemoryAPI(), list[list[str]]()

    async def after_write(changed: dict[str, tuple[ServicePort, ...]]) -> None:
        received.append(sorted(changed))

    api.put(service("web", "10.96.5.1"))
    async with proxying(api, RecordingWriter(), after_write=after_write) as proxy:
        await proxy.verify()
        assert received == [["default/web"], []]


async def test_damage_is_repaired_also_while_changes_never_cease() -> None:
    api, writer, clock = MemoryAPI(), RecordingWriter(), FakeClock()
    async with proxying(api, writer, clock=clock) as proxy:
        good, number = writer.read, 0

        async def busily() -> object:
            nonlocal number
            number += 1
            held = await good()
            api.put(service(f"s{number}", f"10.96.6.{number}"))
            api.put(slice_of(f"s{number}", "10.244.1.2"))
            await settle(60)
            return held

        writer.read = busily  # type: ignore[method-assign,assignment]
        whole = list(writer.tables["nat"]["OUTPUT"])
        writer.tables["nat"]["OUTPUT"].clear()
        writer.generation += 1
        assert [await proxy.verify() for _ in range(3)] == [False, False, True]
        assert writer.tables["nat"]["OUTPUT"] == whole
        await settle(60)
        assert "default/s3" in str(writer.tables)  # what had to wait was written after


async def test_where_the_fingerprint_can_miss_a_change_everything_is_compared_each_period() -> None:
    clock = FakeClock()
    drift = DriftDetector(lambda: b"1", clock, 30)
    drift.finished((await drift.begin_comparison()).started)
    async with drift.writing(1, since=b"1"):
        pass
    assert not drift.comparison_due
    await clock.advance(30)
    assert drift.comparison_due


def value(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


async def test_metrics_have_upstreams_names_and_values() -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    here, there = endpoint("10.244.1.2", node="node-1"), endpoint("10.244.2.2", node="node-2")
    local = service("web", "10.96.5.1", internal_traffic_policy="Local")
    missing = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
    before = value(missing, traffic_policy="internal", ip_family="IPv4")
    api.put(service("first", "10.96.5.9"))
    api.put(slice_of("first", "10.244.1.9"))
    async with proxying(api, writer):
        assert value("kubeproxy_sync_proxy_rules_iptables_total", table="nat", ip_family="IPv4") == 5
        changes = value("kubeproxy_sync_proxy_rules_service_changes_total")
        api.put(local)
        api.put(slice_of("web", there))
        await settle(60)
        assert value("kubeproxy_sync_proxy_rules_service_changes_total") == changes + 1
        assert value("kubeproxy_sync_proxy_rules_service_changes_pending") == 0
        assert value("kubeproxy_sync_proxy_rules_endpoint_changes_pending") == 0
        assert value(missing, traffic_policy="internal", ip_family="IPv4") == before + 1
        assert value("kubeproxy_sync_proxy_rules_iptables_last", table="filter", ip_family="IPv4") >= 1
        api.put(slice_of("web", here, there))
        await settle(60)
        assert value(missing, traffic_policy="internal", ip_family="IPv4") == before
        assert value("kubeproxy_sync_proxy_rules_iptables_total", table="nat", ip_family="IPv4") > 0
    shown = metrics.exposition().decode()
    for name in (
        "kubernetes_build_info",
        "process_resident_memory_bytes",
        "kubeproxy_network_programming_duration_seconds",
        "kubeproxy_sync_proxy_rules_duration_seconds",
        "kubeproxy_sync_full_proxy_rules_duration_seconds",
        "kubeproxy_sync_partial_proxy_rules_duration_seconds",
        "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    ):
        assert f"# TYPE {name} " in shown
    assert 'kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"}' in shown
    assert 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"}' in shown  # before the first
    for name in ("iptables_restore", "iptables_partial_restore", "nftables_sync", "nftables_cleanup"):
        assert f"# TYPE kubeproxy_sync_proxy_rules_{name}_failures_total counter" in shown
    for name in ("proxy_healthz_total", "proxy_livez_total", "conntrack_reconciler_sync_duration_seconds"):
        assert f"# TYPE kubeproxy_{name} " in shown


def test_flows_of_an_earlier_life_go_where_they_lead_elsewhere() -> None:
    ports = plan_service(
        service("dns", "10.96.5.3", port("dns", 53, "UDP"), external_ips=["192.0.2.7"]),
        [slice_of("dns", "10.244.1.2", ports={"dns": 5353}, protocol="UDP")],
    )
    flows = [
        flow("10.96.5.3", 53, "10.244.1.2", 5353),
        flow("10.96.5.3", 53, "10.244.1.9", 5353),
        flow("192.0.2.7", 53, "192.0.2.7", 53),
        flow("10.96.5.4", 53, "10.244.1.9", 5353),
    ]
    stale = conntrack.leftover(conntrack.wanted_endpoints(ports, 4, "UDP"))
    assert [stale(each) for each in flows] == [False, True, True, False]
    assert not any(map(conntrack.leftover(conntrack.wanted_endpoints(ports, 4, "SCTP")), flows))
    without = plan_service(service("dns", "10.96.5.3", port("dns", 53, "UDP")), [])
    assert not any(map(conntrack.leftover(conntrack.wanted_endpoints(without, 4, "UDP")), flows))


async def test_a_slice_of_a_headless_service_is_not_proxied_also_when_the_label_comes_later() -> None:
    table = ServiceTable(NodeView("node-1"))
    table.set_service("default/web", service("web", "10.96.5.1"))
    plain, headless = slice_of("web", "10.244.1.2"), slice_of("web", "10.244.1.2")
    headless.metadata.labels = {**headless.metadata.labels, "service.kubernetes.io/headless": ""}
    found, planned = [], dict[str, tuple[ServicePort, ...]]()
    for slice_ in (headless, plain, headless):
        table.set_slice(slice_)
        planned |= await table.take_changes()
        found.append(len(planned["default/web"][0].endpoints))
    assert found == [0, 1, 0]
