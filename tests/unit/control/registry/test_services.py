from __future__ import annotations

import asyncio
import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from control.auth.user import UserInfo
from control.registry.core import stored_services
from control.registry.core.allocation import ServiceAllocator
from control.registry.core.pools import Pool, Taken, address_offset, port_offset
from control.registry.strategy import Outcome
from control.storage.store import Item, KeyExists, RevisionConflict
from kube.clock import format_time
from kube.errors import StatusError, already_exists
from tests.unit.control.registry.strategies import (
    Object,
    cells,
    created,
    problems,
    service,
    strategy_of,
    update_problems,
)


class Values:
    """The few keys that are not objects, with compare-and-swap."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}

    async def get(self, key: str) -> Item | None:
        return self.items.get(key)

    async def create(self, key: str, value: bytes) -> Item:
        if key in self.items:
            raise KeyExists(key, self.items[key])
        self.items[key] = Item(key, value, 1, 1)
        return self.items[key]

    async def update(self, key: str, value: bytes, expected: int) -> Item:
        if self.items[key].revision != expected:
            raise RevisionConflict(key, expected, self.items[key])
        self.items[key] = Item(key, value, expected + 1, 1)
        return self.items[key]


class Stored(NamedTuple):
    key: str
    data: bytes


class Cluster:
    """Objects in memory, as an allocation sees them; what another server has claimed is in `foreign`."""

    def __init__(self, *services: Object, dry_run: bool = False) -> None:
        self.user, self.dry_run = UserInfo("test"), dry_run
        self.services = list(services)
        self.ranges: list[Object] = []
        self.records: dict[str, Object] = {}
        self.foreign: set[str] = set()
        self.store: Any = Values()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    async def current(self) -> None:
        """All there is is shown at once."""

    def find(self, group: str, version: str, plural: str, namespace: str, name: str) -> Object | None:
        return None

    def entries(self, group: str, version: str, plural: str) -> list[Stored]:
        found = self.objects(group, version, plural)
        return [Stored(f"/{plural}/{obj['metadata']['name']}", json.dumps(obj).encode()) for obj in found]

    def objects(self, group: str, version: str, plural: str) -> list[Object]:
        if plural == "ipaddresses":
            return list(self.records.values())
        return self.services if plural == "services" else self.ranges

    async def create(self, obj: Object) -> Object:
        name = obj["metadata"]["name"]
        if name in self.records or name in self.foreign:
            raise already_exists("networking.k8s.io", "ipaddresses", name)
        obj["metadata"]["creationTimestamp"] = format_time(self.now)
        self.records[name] = obj
        return obj

    async def delete(self, group: str, version: str, plural: str, namespace: str, name: str) -> None:
        self.records.pop(name, None)


def allocator(ranges: tuple[str, ...] = ("10.96.0.0/24",), ports: range = range(30000, 30100)) -> ServiceAllocator:
    return ServiceAllocator(ranges, ports)


def named(name: str, **spec: Any) -> Object:
    obj = created(service(**spec))
    obj["metadata"]["name"] = name
    return obj


async def stored(found: ServiceAllocator, cluster: Cluster, obj: Object, old: Object | None = None) -> Object:
    finish = await found.allocate(obj, old, cluster)
    await finish(Outcome.STORED)
    return obj


def test_a_bare_service_gets_upstreams_defaults() -> None:
    assert created(service())["spec"] == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": {"app": "web"},
        "sessionAffinity": "None",
        "type": "ClusterIP",
        "internalTrafficPolicy": "Cluster",
    }
    sticky = created(service(sessionAffinity="ClientIP", type="LoadBalancer"))["spec"]
    assert sticky["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    assert sticky["externalTrafficPolicy"] == "Cluster"
    assert sticky["allocateLoadBalancerNodePorts"] is True


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


async def test_an_address_that_is_asked_for_is_given_once() -> None:
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
    read, original = list[bytes](), stored_services._held
    monkeypatch.setattr(stored_services, "_held", lambda data: (read.append(data), original(data))[1])
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
    with pytest.raises(Taken):
        pool.claim(116, "y")


REFUSED = [
    (service(ports=[]), "spec.ports: Required value"),
    (service(ports=[{"port": 0}]), "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
    (service(ports=[{"port": 1}, {"port": 2}]), "spec.ports[0].name: Required value"),
    (
        service(ports=[{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]),
        'spec.ports[1].name: Duplicate value: "a"',
    ),
    (
        service(ports=[{"port": 1, "nodePort": 30000}]),
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
    ),
    (
        service(type="Magic"),
        'spec.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"',
    ),
    (service(type="ExternalName"), "spec.externalName: Required value"),
    (
        service(clusterIP="None", type="NodePort"),
        "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
    ),
    (
        service(externalIPs=["127.0.0.1"]),
        'spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)',
    ),
    (
        service(externalTrafficPolicy="Local"),
        'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services',
    ),
    (
        service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 100000}}),
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 100000: must be greater than 0 and less than "
        "86400",
    ),
    (
        service(loadBalancerSourceRanges=["10.0.0.0/8"]),
        "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
    ),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=[m[:60] for _, m in REFUSED])
def test_a_bad_service_is_refused_in_upstreams_words(obj: Object, message: str) -> None:
    assert message in problems(obj)


async def test_the_cluster_address_may_not_change() -> None:
    old = await stored(allocator(), Cluster(), named("a", clusterIP="10.96.0.10"))
    new = copy.deepcopy(old)
    new["spec"]["clusterIP"] = "10.96.0.11"
    assert update_problems(old, new) == ['spec.clusterIPs[0]: Invalid value: ["10.96.0.11"]: may not change once set']


async def test_an_update_that_leaves_the_address_out_keeps_it() -> None:
    old = await stored(allocator(), Cluster(), named("a", type="NodePort"))
    new = named("a", type="NodePort")
    assert update_problems(old, new) == []
    strategy_of(new).prepare_update(new, old)
    assert new["spec"] == old["spec"]


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"clusterIP": "10.96.0.5"}, {}, ("ClusterIP", "10.96.0.5", "<none>", "80/TCP")),
        (
            {"type": "NodePort", "clusterIP": "10.96.0.5", "ports": [{"port": 80, "nodePort": 30001}]},
            {},
            ("NodePort", "10.96.0.5", "<none>", "80:30001/TCP"),
        ),
        ({"type": "LoadBalancer", "clusterIP": "10.96.0.5"}, {}, ("LoadBalancer", "10.96.0.5", "<pending>", "80/TCP")),
        (
            {"type": "LoadBalancer", "clusterIP": "10.96.0.5", "externalIPs": ["1.2.3.4"]},
            {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}]}},
            ("LoadBalancer", "10.96.0.5", "9.9.9.9,1.2.3.4", "80/TCP"),
        ),
        (
            {"type": "ExternalName", "externalName": "example.com", "ports": []},
            {},
            ("ExternalName", "<none>", "example.com", "<none>"),
        ),
    ],
)
def test_a_services_row_shows_how_it_is_reached(spec: Object, status: Object, expected: tuple[str, ...]) -> None:
    obj = created(service(**spec))
    obj["status"] = status
    row = cells(obj)
    assert (row["Type"], row["Cluster-IP"], row["External-IP"], row["Port(s)"]) == expected
    assert (row["Age"], row["Selector"]) == ("5m", "app=web")
