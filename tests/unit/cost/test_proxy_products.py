"""The largest object together with many others: the proxy's cost is their sum, and a small change costs little.

Each list and map that may be long in an object that the proxy follows is made long, beside small objects of every kind. Lines
of Python are counted while the tables are made in all three modes, and while one small object of each kind changes. What a
limit bounds (`service_limits.py`, `policy/limits.py`) is kept below it here.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kube.api import core_v1, discovery_v1, networking_v1
from kube.informer import Change
from kube.object_names import key_of
from netproxy import large_changes
from netproxy.dns.directory import InformerDirectory
from netproxy.iptables.backend import IPTablesBackend
from netproxy.ipvs.backend import IPVSBackend
from netproxy.nftables.backend import NFTablesBackend
from netproxy.node_address_watcher import NodeAddressWatcher
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.proxy import ServiceProxy
from netproxy.slim_objects import (
    SlimContainer,
    SlimMeta,
    SlimNamespace,
    SlimNode,
    SlimNodeAddress,
    SlimNodeStatus,
    SlimPod,
    SlimPort,
)
from tests.support.clock import FakeClock
from tests.support.cost import Lines
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.ipvs import MemoryKernel
from tests.support.nft_in_memory import RecordingWriter as NftRecordingWriter
from tests.support.packet_cases import FIXED, RULES
from tests.support.policies import pod, policy
from tests.support.services import endpoint, port, service, slice_of

STEEPEST = 0.25
"""The most that a square or a product of numbers of items may count, in lines: comparing each with each counts 0.5 or more.
Turns of the event loop depend on time, and take some lines."""
APART = 0.25
"""The most lines that an item of the large object may count in a change of a small one."""
NOT_OURS = frozenset({"asyncio", "logging", "prometheus_client", "tests", "writer.py", "contextlib.py"})
"""Parts of paths that are not counted: substitutes of the kernel, and code whose time does not depend on sizes."""


@pytest.fixture(autouse=True)
def in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all rules made where steps are counted."""
    monkeypatch.setattr(large_changes, "LARGE", 1 << 60)


class Steps(Lines):
    """Counts the lines of Python that are executed while it is entered."""

    def __init__(self) -> None:
        super().__init__(NOT_OURS)


class Followed:
    """An informer without a server: its handlers are called by the test."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self._handlers: list[Callable[[Any], None]] = []

    def subscribe(self, handler: Callable[[Any], None]) -> None:
        self._handlers.append(handler)

    def add_index(self, name: str, values: Callable[[Any], Any]) -> None:
        """Look-ups are not counted here."""

    def get(self, key: str) -> Any:
        return self.objects.get(key)

    def put(self, obj: Any) -> None:
        old = self.objects.get(key_of(obj))
        self.objects[key_of(obj)] = obj
        for handler in self._handlers:
            handler(Change("MODIFIED" if old is not None else "ADDED", old, obj))


class Site:
    """The proxy in one of its modes, and the policies beside it."""

    def __init__(self, mode: str) -> None:
        clock = FakeClock()
        backend: Any = {
            "iptables": lambda: IPTablesBackend(RecordingWriter(), RULES, FIXED, clock=clock),
            "nftables": lambda: NFTablesBackend(NftRecordingWriter(), RULES, FIXED, clock=clock),
            "ipvs": lambda: IPVSBackend(MemoryKernel(), RecordingWriter(), RULES, FIXED, clock=clock),
        }[mode]()
        services, slices, nodes = Followed(), Followed(), Followed()
        self.proxy = ServiceProxy(services, slices, [backend], node_name="node-1", clock=clock)  # type: ignore[arg-type]
        InformerDirectory(services, slices)  # type: ignore[arg-type]
        NodeAddressWatcher(
            "node-1", nodes, self.proxy.changes.set_other_node_address, self.proxy.changes.set_own_addresses
        )  # type: ignore[arg-type]
        self.policies = PolicyBackend(NftRecordingWriter(), 4, clock=clock)
        self.enforcer = PolicyEnforcer(None, "node-1", [self.policies], clock=clock)  # type: ignore[arg-type]
        # The namespaces' shares of time would decide on the order, which differs from run to run.
        self.enforcer._queue._timer = lambda: 0.0
        policies, pods, namespaces = Followed(), Followed(), Followed()
        policies.subscribe(self.enforcer._policy_changed)
        pods.subscribe(self.enforcer._pod_changed)
        namespaces.subscribe(self.enforcer._namespace_changed)
        self.followed = {
            core_v1.Service: services,
            discovery_v1.EndpointSlice: slices,
            SlimNode: nodes,
            networking_v1.NetworkPolicy: policies,
            SlimPod: pods,
            SlimNamespace: namespaces,
        }

    async def start(self, objects: list[Any]) -> int:
        """Return the steps that it takes to know objects and have them in force."""
        with Steps() as steps:
            for each in objects:
                self.followed[type(each)].put(each)
            await self._take_in()
            await self.proxy._start()
            await self.enforcer._families[0].write()
        return steps.count

    async def _take_in(self) -> None:
        task = asyncio.create_task(self.enforcer._queue.run())
        await self.enforcer._queue.join()
        task.cancel()

    async def change(self, obj: Any) -> int:
        with Steps() as steps:
            self.followed[type(obj)].put(obj)
            await self._take_in()
            if self.proxy.table.dirty:
                await self.proxy._sync()
            await self.enforcer._families[0].write()
        return steps.count


# -- small objects ------------------------------------------------------------------------------------------------
def small(number: int) -> list[Any]:
    """Return one object of each kind."""
    name, ip = f"s{number}", f"10.244.1.{number + 1}"
    peers = [
        {"podSelector": {"matchLabels": {"app": name}}},
        {"namespaceSelector": {"matchLabels": {"team": name}}},
        {"ipBlock": {"cidr": f"203.0.{number}.0/24"}},
    ]
    return [
        SlimNamespace(SlimMeta(name=name, labels={"team": name})),
        pod(name, ip, namespace=name, labels={"app": name}, ports={"http": ("TCP", 80)}),
        service(
            name,
            f"10.96.6.{number + 1}",
            port("http", 80),
            namespace=name,
            type="LoadBalancer",
            ingress=(f"198.51.100.{number + 1}",),
            load_balancer_source_ranges=["10.0.0.0/8"],
        ),
        slice_of(name, ip, namespace=name),
        policy(name, name, ingress=[{"from": peers, "ports": [{"port": "http"}, {"port": 81}]}]),
        node(f"n{number}", f"192.168.7.{number + 1}"),
    ]


def node(name: str, *addresses: str, labels: dict[str, str] | None = None) -> SlimNode:
    status = SlimNodeStatus([SlimNodeAddress("InternalIP", each) for each in addresses])
    return SlimNode(SlimMeta(name=name, labels=labels or {}), status=status)


def changed(number: int) -> Iterator[Any]:
    """Yield an object of each kind, other than it was."""
    namespace, made, web, slice_, policy_, node_ = copy.deepcopy(small(number))
    namespace.metadata.labels["more"] = "x"
    made.status.pod_ips[0].ip = "10.244.1.250"
    web.spec.ports[0].port = 81
    slice_.endpoints[0].addresses = ["10.244.1.250"]
    policy_.spec.ingress[0].ports[1].port = 82
    node_.status.addresses[0].address = "192.168.7.250"
    yield from (namespace, made, web, slice_, policy_, node_)


# -- large ones ---------------------------------------------------------------------------------------------------
def addresses(count: int, first: str = "10.250") -> list[str]:
    return [f"{first}.{2 * n // 250}.{2 * n % 250 + 1}" for n in range(count)]


def numbered(count: int) -> dict[str, int]:
    return {f"p{n}": n + 1 for n in range(count)}


def many_ports(count: int) -> list[core_v1.ServicePort]:
    return [port(*each) for each in numbered(count).items()]


def balanced(*ports: core_v1.ServicePort, ips: int = 1, ranges: int = 0) -> core_v1.Service:
    return service(
        "large",
        "10.96.5.1",
        *ports,
        type="LoadBalancer",
        ingress=tuple(addresses(ips)),
        load_balancer_source_ranges=[f"{each}/32" for each in addresses(ranges)],
    )


def with_labels(made: Any, count: int) -> Any:
    made.metadata.labels = {**made.metadata.labels, **{f"l{n}": "x" for n in range(count)}}
    return made


def ingress(*peers: dict[str, Any], ports: list[dict[str, Any]] | None = None, **spec: Any) -> list[Any]:
    selected = pod("large", "10.244.1.240", labels={"app": "large"}, ports={"p1": ("TCP", 80)})
    return [selected, policy("large", ingress=[{"from": list(peers), "ports": ports or []}], **spec)]


def expressions(count: int) -> list[dict[str, Any]]:
    return [{"key": f"k{n}", "operator": "DoesNotExist"} for n in range(count)]


def values(count: int) -> list[dict[str, Any]]:
    return [{"key": "app", "operator": "NotIn", "values": [f"v{n}" for n in range(count)]}]


def crowded_pod(count: int) -> SlimPod:
    made = pod("large", "10.244.1.240", labels={"app": "large"})
    made.spec.containers = [SlimContainer([SlimPort(n + 1, f"p{n}")]) for n in range(count)]
    return made


def crowded_slice(count: int) -> discovery_v1.EndpointSlice:
    made = slice_of("large", endpoint("10.244.1.240"))
    made.endpoints[0].addresses = addresses(count, "10.244")
    return made


LARGE: dict[str, Callable[[int], list[Any]]] = {
    "Service ports": lambda n: [
        service("large", "10.96.5.1", *many_ports(n)),
        slice_of("large", "10.244.1.240", ports=numbered(n)),
    ],
    "Service externalIPs": lambda n: [
        service("large", "10.96.5.1", external_ips=addresses(n)),
        slice_of("large", "10.244.1.240"),
    ],
    "Service loadBalancerSourceRanges": lambda n: [
        balanced(port("http", 80), ranges=n),
        slice_of("large", "10.244.1.240"),
    ],
    "Service loadBalancer.ingress": lambda n: [
        balanced(port("http", 80), ips=n, ranges=3),
        slice_of("large", "10.244.1.240"),
    ],
    "Service labels": lambda n: [with_labels(balanced(port("http", 80)), n), slice_of("large", "10.244.1.240")],
    "Service sessionAffinity": lambda n: [
        service("large", "10.96.5.1", session_affinity="ClientIP"),
        slice_of("large", *addresses(n, "10.244")),
    ],
    "EndpointSlice endpoints": lambda n: [service("large", "10.96.5.1"), slice_of("large", *addresses(n, "10.244"))],
    "EndpointSlice repeated addresses": lambda n: [
        service("large", "10.96.5.1"),
        slice_of("large", *["10.244.1.240"] * n, ports=numbered(3)),
    ],
    "EndpointSlice addresses of an endpoint": lambda n: [service("large", "None"), crowded_slice(n)],
    "EndpointSlice ports": lambda n: [
        service("large", "10.96.5.1"),
        slice_of("large", "10.244.1.240", ports=numbered(n)),
    ],
    "EndpointSlice hints": lambda n: [
        service("large", "10.96.5.1"),
        slice_of("large", endpoint("10.244.1.240", zones=tuple(f"z{each}" for each in range(n)))),
    ],
    "EndpointSlices": lambda n: [
        service("large", "10.96.5.1"),
        *(slice_of("large", each, suffix=each) for each in addresses(n, "10.244")),
    ],
    "NetworkPolicy peers by pods": lambda n: ingress(
        *({"podSelector": {"matchLabels": {"app": f"a{m}"}}} for m in range(n))
    ),
    "NetworkPolicy peers by address": lambda n: ingress(
        *({"ipBlock": {"cidr": f"{each}/32"}} for each in addresses(n))
    ),
    "NetworkPolicy exceptions": lambda n: ingress(
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": [f"{each}/32" for each in addresses(n)]}}
    ),
    "NetworkPolicy ports": lambda n: ingress(ports=[{"port": 2 * each} for each in range(1, n + 1)]),
    "NetworkPolicy named ports": lambda n: ingress(ports=[{"port": f"p{each}"} for each in range(n)]),
    "NetworkPolicy rules": lambda n: [
        *ingress(),
        policy("large", ingress=[{"ports": [{"port": each}]} for each in range(1, n + 1)]),
    ],
    "NetworkPolicy egress to named ports": lambda n: [
        *ingress(),
        policy(
            "large",
            policyTypes=["Egress"],
            egress=[
                {"to": [{"podSelector": {"matchLabels": {"app": f"a{m}"}}}], "ports": [{"port": f"p{m}"}]}
                for m in range(n)
            ],
        ),
    ],
    "NetworkPolicy requirements": lambda n: ingress(podSelector={"matchExpressions": expressions(n)}),
    "NetworkPolicy values": lambda n: ingress(podSelector={"matchExpressions": values(n)}),
    "NetworkPolicy requirements of namespaces": lambda n: ingress(
        {"namespaceSelector": {"matchExpressions": expressions(n)}}
    ),
    "NetworkPolicies": lambda n: [
        *ingress(),
        *(policy(f"large-{m}", podSelector={"matchLabels": {f"l{m}": "x"}}, ingress=[]) for m in range(n)),
    ],
    "NetworkPolicies that allow nothing": lambda n: [
        *ingress(),
        *(policy(f"large-{m}", podSelector={}, ingress=[]) for m in range(n)),
    ],
    "Pod ports": lambda n: [crowded_pod(n), *ingress(ports=[{"port": "p1"}])[1:]],
    "Pod labels": lambda n: [with_labels(each, n) for each in ingress({"podSelector": {"matchLabels": {"l1": "x"}}})],
    "Namespace labels": lambda n: [
        SlimNamespace(SlimMeta(name="default", labels={f"l{m}": "x" for m in range(n)})),
        *ingress({"namespaceSelector": {"matchLabels": {"l1": "x"}}}),
    ],
    "Node addresses": lambda n: [node("large", *addresses(n))],
    "Node labels": lambda n: [node("large", "192.168.8.1", labels={f"l{m}": "x" for m in range(n)})],
}
TWO: dict[str, Callable[[int], list[Any]]] = {
    "ports and source ranges": lambda n: [
        balanced(*many_ports(n), ranges=n),
        slice_of("large", "10.244.1.240", ports=numbered(n)),
    ],
    "ports of the Service and of slices": lambda n: [
        service("large", "10.96.5.1", *many_ports(n)),
        *(slice_of("large", ports=numbered(n), suffix=str(m)) for m in range(2)),
    ],
    "named ports of policy and pod": lambda n: [
        crowded_pod(n),
        *ingress(ports=[{"port": f"p{m}"} for m in range(n)])[1:],
    ],
    "requirements and labels": lambda n: [
        with_labels(each, n) for each in ingress(podSelector={"matchExpressions": expressions(n)})
    ],
}
"""Two long lists that are not multiplied, in objects of one owner."""


async def start(mode: str, large: list[Any], others: int) -> tuple[Site, int]:
    site = Site(mode)
    return site, await site.start([*large, *(each for number in range(others) for each in small(number))])


async def cost(mode: str, name: str, size: int, others: int) -> int:
    return (await start(mode, (LARGE | TWO)[name](size), others))[1]


MODES = ["iptables", "nftables", "ipvs"]
CASES = [
    pytest.param(mode, name, id=f"{mode}: {name}")
    for name in LARGE
    for mode in (MODES if name.startswith(("Service", "Endpoint")) else MODES[1:2])
]


@pytest.mark.parametrize(("mode", "name"), CASES)
async def test_making_the_tables_costs_the_sum_of_the_large_object_and_the_others(mode: str, name: str) -> None:
    await cost(mode, name, 128, 2), await cost(mode, name, 2, 32)  # what is made once and kept does not count
    few, more, many = [await cost(mode, name, size, 4) for size in (32, 64, 128)]
    assert (many - more - 2 * (more - few)) / (6 * 32**2) < STEEPEST, "the square of its items"
    few, more, many = [await cost(mode, name, 32, others) for others in (8, 16, 32)]
    assert (many - more - 2 * (more - few)) / (6 * 8**2) < STEEPEST, "the square of the others"
    alone, both = [await cost(mode, name, 64, others) for others in (8, 16)]
    assert ((both - more) - (alone - few)) / (32 * 8) < STEEPEST, "the product of its items and the others"


@pytest.mark.parametrize(
    ("mode", "name"),
    # The sets of the IPVS mode are a product of ports and ranges; what a Service may need of it has a limit.
    [(mode, name) for mode in MODES for name in TWO if (mode, name) != ("ipvs", "ports and source ranges")],
)
async def test_two_long_lists_cost_their_sum(mode: str, name: str) -> None:
    await cost(mode, name, 128, 2)
    few, more, many = [await cost(mode, name, size, 2) for size in (32, 64, 128)]
    assert (many - more - 2 * (more - few)) / (6 * 32**2) < STEEPEST


@pytest.mark.parametrize(("mode", "name"), CASES)
async def test_a_change_of_a_small_object_does_not_cost_the_large_one_again(mode: str, name: str) -> None:
    costs = []
    for size in (2, 32, 96):
        site, _ = await start(mode, LARGE[name](size), 3)
        costs.append([await site.change(each) for each in changed(1)])
    slopes = [(much - little) / 64 for little, much in zip(*costs[1:], strict=True)]
    assert {kind: slope for kind, slope in zip(site.followed, slopes, strict=True) if slope > APART} == {}
