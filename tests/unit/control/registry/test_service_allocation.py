"""Addresses and ports of Services: allocation, release, and their records for several servers."""

from __future__ import annotations

import asyncio
import copy
from datetime import timedelta

import pytest

from control.registry.core.service import stored as stored_services
from control.registry.core.service.allocator import ServiceAllocator
from control.registry.core.service.pools import AlreadyAllocated, Pool, address_offset, port_offset
from control.registry.strategy_context import Outcome
from kube.errors import StatusError
from kube.json_object import Object
from tests.unit.control.registry.services import Cluster, allocator, named, stored
from tests.unit.control.registry.strategies import strategy_of


async def test_a_service_gets_an_address_families_and_a_record_of_it() -> None:
    cluster = Cluster()
    spec = (await stored(allocator(), cluster, named("a")))["spec"]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    record = cluster.records[spec["clusterIP"]]
    assert record["spec"] == {"parentRef": {"resource": "services", "namespace": "default", "name": "a"}}
    assert record["metadata"]["labels"] == {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }


async def test_a_requested_address_is_allocated_once() -> None:
    found, cluster = allocator(), Cluster()
    await stored(found, cluster, named("a", clusterIP="10.96.0.10"))
    with pytest.raises(StatusError) as refused:
        await found.allocate(named("b", clusterIP="10.96.0.10"), None, cluster)
    assert refused.value.code == 422
    assert refused.value.message == (
        'Service "b" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided '
        "IP is already allocated"
    )


async def test_an_address_outside_the_range_is_refused() -> None:
    message = r"the provided IP \(10\.0\.0\.1\) is not in the valid range\. The range of valid IPs is 10\.96\.0\.0/24"
    with pytest.raises(StatusError, match=message):
        await allocator().allocate(named("a", clusterIP="10.0.0.1"), None, Cluster())


async def test_every_service_of_a_full_range_has_its_own_address_and_then_there_is_none() -> None:
    found, cluster = allocator(("10.96.0.0/28",)), Cluster()
    given = [(await stored(found, cluster, named(f"s{i}")))["spec"]["clusterIP"] for i in range(14)]
    assert len(set(given)) == 14
    assert "10.96.0.0" not in given and "10.96.0.15" not in given
    with pytest.raises(StatusError) as refused:
        await found.allocate(named("more"), None, cluster)
    assert refused.value.message == "Internal error occurred: failed to allocate a serviceIP: range is full"


async def test_what_a_failed_write_had_taken_is_free_again() -> None:
    found, cluster = allocator(), Cluster()
    finish = await found.allocate(named("a", clusterIP="10.96.0.10", type="NodePort"), None, cluster)
    await finish(Outcome.NOT_STORED)
    assert cluster.records == {}
    await stored(found, cluster, named("b", clusterIP="10.96.0.10"))


async def test_a_refused_port_gives_the_address_back() -> None:
    found, cluster = allocator(), Cluster()
    bad = named("a", clusterIP="10.96.0.10", type="NodePort", ports=[{"port": 80, "nodePort": 9}])
    with pytest.raises(StatusError) as refused:
        await found.allocate(bad, None, cluster)
    assert "spec.ports[0].nodePort: Invalid value: 9: provided port is not in the valid range." in refused.value.message
    assert "The range of valid ports is 30000-30099" in refused.value.message
    await stored(found, cluster, named("b", clusterIP="10.96.0.10"))


async def test_a_deleted_service_gives_everything_back() -> None:
    found, cluster = allocator(), Cluster()
    ports = [{"port": 80, "nodePort": 30001}]
    gone = await stored(found, cluster, named("a", clusterIP="10.96.0.10", type="NodePort", ports=ports))
    await found.release(gone, cluster)
    assert cluster.records == {}
    await stored(found, cluster, named("b", clusterIP="10.96.0.10", type="NodePort", ports=ports))


async def test_addresses_of_stored_services_are_known_after_a_restart_and_lost_records_are_removed() -> None:
    running = named("a", clusterIP="10.96.0.10", clusterIPs=["10.96.0.10"])
    cluster = Cluster(running)
    managed = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}
    cluster.records["10.96.0.99"] = {"metadata": {"name": "10.96.0.99", "labels": managed}}
    found = allocator()
    with pytest.raises(StatusError, match="provided IP is already allocated"):
        await found.allocate(named("b", clusterIP="10.96.0.10"), None, cluster)
    assert "10.96.0.99" not in cluster.records


async def test_an_address_that_another_server_has_claimed_is_left_to_it() -> None:
    found, cluster = allocator(("10.96.0.0/30",)), Cluster()
    cluster.foreign = {"10.96.0.1"}
    assert (await stored(found, cluster, named("a")))["spec"]["clusterIP"] == "10.96.0.2"


async def test_where_servers_share_a_store_each_knows_what_the_others_gave_and_took_back() -> None:
    cluster = Cluster()
    one, other = (ServiceAllocator(("10.96.0.0/24",), range(30000, 30100), shared=True) for _ in range(2))
    ports = [{"port": 80, "nodePort": 30001}]
    await stored(other, cluster, named("early"))
    gone = await stored(one, cluster, named("a", clusterIP="10.96.0.10", type="NodePort", ports=ports))
    cluster.services.append(gone)
    with pytest.raises(StatusError, match="provided port is already allocated"):
        await other.allocate(named("b", type="NodePort", ports=copy.deepcopy(ports)), None, cluster)
    cluster.services.remove(gone)
    await one.release(gone, cluster)
    again = named("b", clusterIP="10.96.0.10", type="NodePort", ports=copy.deepcopy(ports))
    assert (await stored(other, cluster, again))["spec"]["clusterIP"] == "10.96.0.10"


async def test_each_service_is_read_once_for_the_writes_of_others_where_servers_share_a_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, original = list[bytes](), stored_services._allocation
    monkeypatch.setattr(stored_services, "_allocation", lambda data: (read.append(data), original(data))[1])
    cluster = Cluster(*(named(f"s{number}", clusterIP=f"10.96.0.{number + 1}") for number in range(50)))
    found = ServiceAllocator(("10.96.0.0/24",), range(30000, 30100), shared=True)
    for number in range(3):
        cluster.services.append(await stored(found, cluster, named(f"new-{number}")))
    await found.repair(cluster)
    assert len(read) == 53
    cluster.services[0]["spec"]["clusterIP"] = "10.96.0.200"
    cluster.records.pop(cluster.services.pop(1)["spec"]["clusterIP"])
    again = await stored(found, cluster, named("again", clusterIP="10.96.0.2"))
    assert (len(read), again["spec"]["clusterIP"]) == (54, "10.96.0.2")
    with pytest.raises(StatusError, match="already allocated"):
        await found.allocate(named("taken", clusterIP="10.96.0.200"), None, cluster)
    assert len(found._stored._known) == 52


async def test_a_server_alone_keeps_no_stored_service_between_two_repairs() -> None:
    cluster = Cluster(*(named(f"s{number}", clusterIP=f"10.96.0.{number + 1}") for number in range(5)))
    found = allocator()
    for number in range(2):
        await stored(found, cluster, named(f"new-{number}"))
        assert not found._stored._known
        await found.repair(cluster)
        assert not found._stored._known


@pytest.mark.parametrize("shared", [True, False])
async def test_many_services_are_read_in_turns_and_no_write_overtakes_the_first_that_reads_them(shared: bool) -> None:
    notes = {"annotations": {"note": "x" * 9000}}
    services = [named(f"s{number}", clusterIP=f"10.96.0.{number + 1}") for number in range(60)]
    for each in services:
        each["metadata"] |= notes
    cluster, found = Cluster(*services), ServiceAllocator(("10.96.0.0/26",), range(30000, 30100), shared=shared)
    tasks = [asyncio.create_task(stored(found, cluster, named(f"new-{number}"))) for number in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks) and not found._loaded
    given = {(await task)["spec"]["clusterIP"] for task in tasks}
    assert given == {"10.96.0.61", "10.96.0.62"}


async def test_what_is_under_way_counts_when_the_state_is_read_anew() -> None:
    cluster, found = Cluster(), ServiceAllocator(("10.96.0.0/24",), range(30000, 30100), shared=True)
    ports = [{"port": 80, "nodePort": 30001}]
    finish = await found.allocate(named("a", type="NodePort", ports=ports), None, cluster)
    with pytest.raises(StatusError, match="provided port is already allocated"):
        await found.allocate(named("b", type="NodePort", ports=copy.deepcopy(ports)), None, cluster)
    await finish(Outcome.NOT_STORED)
    await stored(found, cluster, named("b", type="NodePort", ports=copy.deepcopy(ports)))


async def test_a_port_that_a_server_took_and_died_with_is_free_after_a_minute_and_not_before() -> None:
    cluster = Cluster()
    one, other = (ServiceAllocator(("10.96.0.0/24",), range(30000, 30100), shared=True) for _ in range(2))
    ports = [{"port": 80, "nodePort": 30001}]
    await one.allocate(named("a", type="NodePort", ports=ports), None, cluster)  # and never finishes
    for seconds in (0, 59):
        cluster.now += timedelta(seconds=seconds)
        with pytest.raises(StatusError, match="provided port is already allocated"):
            await other.allocate(named("b", type="NodePort", ports=copy.deepcopy(ports)), None, cluster)
    cluster.now += timedelta(seconds=2)
    await stored(other, cluster, named("b", type="NodePort", ports=copy.deepcopy(ports)))


async def test_a_dry_run_writes_no_record_and_keeps_nothing() -> None:
    found, cluster = allocator(), Cluster(dry_run=True)
    obj = named("a", clusterIP="10.96.0.10")
    finish = await found.allocate(obj, None, cluster)
    await finish(Outcome.NOT_STORED)
    assert cluster.records == {}
    await found.allocate(named("b", clusterIP="10.96.0.10"), None, cluster)


async def test_headless_and_external_services_get_no_address() -> None:
    found, cluster = allocator(), Cluster()
    headless = (await stored(found, cluster, named("a", clusterIP="None")))["spec"]
    assert (headless["clusterIPs"], headless["ipFamilies"]) == (["None"], ["IPv4"])
    without = (await stored(found, cluster, named("b", clusterIP="None", selector={})))["spec"]
    assert (without["ipFamilyPolicy"], without["ipFamilies"]) == ("RequireDualStack", ["IPv4", "IPv6"])
    external = named("c", type="ExternalName", externalName="example.com")
    assert "clusterIP" not in (await stored(found, cluster, external))["spec"]
    assert cluster.records == {}


async def test_dual_stack_needs_two_ranges() -> None:
    with pytest.raises(StatusError, match="this cluster is not configured for dual-stack services"):
        await allocator().allocate(named("a", ipFamilyPolicy="RequireDualStack"), None, Cluster())
    both = allocator(("10.96.0.0/24", "fd00::/112"))
    spec = (await stored(both, Cluster(), named("a", ipFamilyPolicy="PreferDualStack")))["spec"]
    assert spec["ipFamilies"] == ["IPv4", "IPv6"]
    assert [":" in ip for ip in spec["clusterIPs"]] == [False, True]


async def test_a_service_cidr_adds_addresses_until_it_is_being_deleted() -> None:
    found, cluster = allocator(("10.96.0.0/30",)), Cluster()
    await stored(found, cluster, named("a"))
    await stored(found, cluster, named("b"))
    with pytest.raises(StatusError, match="range is full"):
        await found.allocate(named("c"), None, cluster)
    more: Object = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/30"]}}
    cluster.ranges.append(more)
    assert (await stored(found, cluster, named("c")))["spec"]["clusterIP"].startswith("10.97.0.")
    more["metadata"]["deletionTimestamp"] = "2026-01-02T11:55:00Z"
    with pytest.raises(StatusError, match="range is full"):
        await found.allocate(named("d"), None, cluster)


async def test_ports_that_differ_in_protocol_alone_share_a_node_port() -> None:
    ports = [
        {"name": "u", "port": 53, "protocol": "UDP"},
        {"name": "t", "port": 53, "protocol": "TCP"},
        {"name": "m", "port": 9},
    ]
    spec = (await stored(allocator(), Cluster(), named("dns", type="NodePort", ports=ports)))["spec"]
    numbers = [p["nodePort"] for p in spec["ports"]]
    assert numbers[0] == numbers[1] != numbers[2]


async def test_a_load_balancer_that_keeps_traffic_local_has_a_health_check_port() -> None:
    found = allocator()
    spec = (await stored(found, Cluster(), named("lb", type="LoadBalancer", externalTrafficPolicy="Local")))["spec"]
    assert spec["healthCheckNodePort"] in range(30000, 30100)
    assert spec["healthCheckNodePort"] != spec["ports"][0]["nodePort"]
    plain = named("x", type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    assert "nodePort" not in (await stored(found, Cluster(), plain))["spec"]["ports"][0]


async def test_changing_the_type_hands_ports_out_and_takes_them_back() -> None:
    found, cluster = allocator(ports=range(30000, 30001)), Cluster()
    old = await stored(found, cluster, named("a"))
    wider = copy.deepcopy(old)
    wider["spec"].update(type="NodePort", externalTrafficPolicy="Cluster")
    await stored(found, cluster, wider, old)
    assert wider["spec"]["ports"][0]["nodePort"] == 30000
    back = copy.deepcopy(wider)
    back["spec"]["type"] = "ClusterIP"
    strategy_of(back).prepare_update(back, wider)
    await stored(found, cluster, back, wider)
    assert "nodePort" not in back["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in back["spec"]
    await stored(found, cluster, named("b", type="NodePort"))


async def test_becoming_an_external_name_gives_the_address_back() -> None:
    found, cluster = allocator(), Cluster()
    old = await stored(found, cluster, named("a", clusterIP="10.96.0.10"))
    new = copy.deepcopy(old)
    new["spec"].update(type="ExternalName", externalName="example.com")
    strategy_of(new).prepare_update(new, old)
    await stored(found, cluster, new, old)
    assert "clusterIP" not in new["spec"]
    assert cluster.records == {}


def test_free_choice_prefers_the_upper_band() -> None:
    assert (address_offset(1 << 20), address_offset(254), port_offset(2768)) == (256, 16, 86)
    pool = Pool(100, 20, 16)
    assert {pool.claim_any("x") for _ in range(4)} == {116, 117, 118, 119}
    assert pool.claim_any("x") in range(100, 116)
    with pytest.raises(AlreadyAllocated):
        pool.claim(116, "y")
