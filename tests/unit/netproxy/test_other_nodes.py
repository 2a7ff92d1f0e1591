"""Addresses of a load balancer that are other nodes' own are left to those nodes."""

import pytest

from kube.api import core_v1, meta_v1
from kube.informer import Change, Informer
from netproxy import metrics
from netproxy.endpoints import NodeView
from netproxy.node_address_watcher import NodeAddressWatcher
from netproxy.service_table import ServiceTable
from netproxy.slim_objects import SlimMeta, SlimNode, SlimNodeAddress, SlimNodeStatus
from tests.support.memory_api import MemoryAPI
from tests.support.services import service, slice_of

ADDRESSES = ("192.168.0.1", "192.168.0.2", "203.0.113.9")


def balanced() -> core_v1.Service:
    return service("web", "10.96.5.1", type="LoadBalancer", ingress=ADDRESSES)


async def test_only_the_services_that_name_an_address_are_planned_again() -> None:
    table = ServiceTable(NodeView("node-1"))
    table.set_service("default/web", balanced())
    table.set_service("default/other", service("other", "10.96.5.2"))
    table.set_slice(slice_of("web", "10.244.1.2"))
    (port,) = (await table.take_changes())["default/web"]
    assert port.load_balancer_ips == ADDRESSES
    table.set_other_node_address("192.168.0.2", present=True)
    ((key, (port,)),) = (await table.take_changes()).items()
    assert (key, port.load_balancer_ips) == ("default/web", ("192.168.0.1", "203.0.113.9"))
    table.set_other_node_address("192.168.0.2", present=True)
    table.set_other_node_address("192.168.0.77", present=True)
    assert await table.take_changes() == {}
    table.set_other_node_address("192.168.0.2", present=False)
    assert set(await table.take_changes()) == {"default/web"}
    table.delete_service("default/web")
    await table.take_changes()
    table.set_other_node_address("192.168.0.2", present=True)
    assert await table.take_changes() == {}


async def test_a_node_takes_no_address_from_another_load_balancer() -> None:
    """A node writes its own addresses: the first may be the virtual address of a load balancer that all nodes serve."""
    table, others = (
        ServiceTable(NodeView("node-1")),
        service("web", "10.96.5.1", type="LoadBalancer", ingress=ADDRESSES),
    )
    others.spec.load_balancer_class = "example.com/balancer"
    table.set_service("default/web", others)
    table.set_slice(slice_of("web", "10.244.1.2"))
    await table.take_changes()
    table.set_other_node_address("203.0.113.9", present=True)
    ports = (await table.take_changes()).get("default/web", table._planned["default/web"])
    assert [port.load_balancer_ips for port in ports] == [ADDRESSES]


async def test_a_node_takes_no_address_of_a_service() -> None:
    """Cluster IPs and external IPs are served whatever addresses nodes name."""
    table = ServiceTable(NodeView("node-1"))
    table.set_service("default/web", service("web", "10.96.5.1", external_ips=["203.0.113.9"]))
    table.set_slice(slice_of("web", "10.244.1.2"))
    for address in ("10.96.5.1", "203.0.113.9"):
        table.set_other_node_address(address, present=True)
    ((port,),) = (await table.take_changes()).values()
    assert (port.cluster_ip, port.external_ips) == ("10.96.5.1", ("203.0.113.9",))


async def test_without_the_built_in_load_balancer_no_address_is_left_to_other_nodes() -> None:
    reported: list[str] = []
    own: list[frozenset[str]] = []
    follower = NodeAddressWatcher(
        "me",
        Informer(MemoryAPI().client(), SlimNode),
        lambda address, present: reported.append(address),
        own.append,
        balanced=False,
    )
    named = node("b", "203.0.113.9")
    for change in (Change("ADDED", None, named), Change("DELETED", named, named)):
        follower._changed(change)
    follower._changed(Change("ADDED", None, node("me", "192.168.0.1")))
    assert (reported, own) == ([], [frozenset({"192.168.0.1"})])


def node(name: str, *addresses: str) -> SlimNode:
    listed = [SlimNodeAddress("InternalIP", each) for each in addresses]
    return SlimNode(SlimMeta(name=name), status=SlimNodeStatus([*listed, SlimNodeAddress("Hostname", name)]))


async def test_each_added_or_removed_address_is_reported_once() -> None:
    reported: list[tuple[str, bool]] = []
    informer: Informer[SlimNode] = Informer(MemoryAPI().client(), SlimNode)
    own: list[frozenset[str]] = []
    follower = NodeAddressWatcher(
        "me", informer, lambda address, present: reported.append((address, present)), own.append
    )

    def changes(type_: str, old: SlimNode | None, new: SlimNode) -> list[tuple[str, bool]]:
        reported.clear()
        follower._changed(Change(type_, old, new))
        return sorted(reported)

    assert changes("ADDED", None, node("me", "10.0.0.1")) == []
    assert changes("DELETED", node("me", "10.0.0.1"), node("me", "10.0.0.1")) == []
    assert own == [frozenset({"10.0.0.1"})]
    first = node("a", "10.0.0.2", "fd99::2")
    assert changes("ADDED", None, first) == [("10.0.0.2", True), ("fd99::2", True)]
    moved = node("a", "10.0.0.3", "fd99::2")
    assert changes("MODIFIED", first, moved) == [("10.0.0.2", False), ("10.0.0.3", True)]
    assert changes("ADDED", None, node("b", "10.0.0.3")) == [("10.0.0.3", True)]
    # The address passed on to another node before its old owner went.
    assert changes("DELETED", moved, moved) == [("fd99::2", False)]
    assert changes("DELETED", node("b", "10.0.0.3"), node("b", "10.0.0.3")) == [("10.0.0.3", False)]


async def test_a_node_takes_no_further_address_from_the_others() -> None:
    """A node writes its own addresses: one more may be the virtual address of a load balancer that all nodes serve."""
    reported: list[tuple[str, bool]] = []
    follower = NodeAddressWatcher(
        "me",
        Informer(MemoryAPI().client(), SlimNode),
        lambda address, present: reported.append((address, present)),
        lambda own: None,
    )
    follower._changed(Change("ADDED", None, node("a", "10.0.0.2", "203.0.113.9", "fd99::2", "fd99::9")))
    assert sorted(reported) == [("10.0.0.2", True), ("fd99::2", True)]


@pytest.mark.parametrize("own_first", [True, False])
async def test_an_address_of_this_node_is_no_others(own_first: bool, caplog: pytest.LogCaptureFixture) -> None:
    reported: list[tuple[str, bool]] = []
    informer: Informer[SlimNode] = Informer(MemoryAPI().client(), SlimNode)
    follower = NodeAddressWatcher(
        "me", informer, lambda address, present: reported.append((address, present)), lambda own: None
    )
    counted = metrics.NODE_CLAIMS_REFUSED.labels("address")._value
    before = counted.get()
    mine, thief = node("me", "10.0.0.1"), node("b", "10.0.0.1", "fd99::2")
    changes = [Change("ADDED", None, mine), Change("ADDED", None, thief)]
    for change in changes if own_first else reversed(changes):
        follower._changed(change)
    for _ in range(3):  # heartbeats
        follower._changed(Change("MODIFIED", thief, thief))
        follower._changed(Change("MODIFIED", mine, mine))
    assert dict(reported).get("10.0.0.1", False) is False
    assert dict(reported)["fd99::2"] is True
    assert counted.get() - before == 1
    assert [record.getMessage() for record in caplog.records] == [
        "node b names the address 10.0.0.1, which belongs to this node: it is not accepted"
    ]
    # This node has another address now, and the old one is the other's in truth.
    follower._changed(Change("MODIFIED", mine, node("me", "10.0.0.9")))
    assert reported[-1] == ("10.0.0.1", True)
    follower._changed(Change("DELETED", thief, thief))
    assert dict(reported)["10.0.0.1"] is False


def test_the_view_of_a_node_reads_what_the_whole_one_writes() -> None:
    from kube import serialize

    whole = core_v1.Node(
        metadata=meta_v1.ObjectMeta(name="a", uid="u"),
        spec=core_v1.NodeSpec(pod_cidr="10.244.1.0/24", pod_cidrs=["10.244.1.0/24", "fd00:1::/64"]),
        status=core_v1.NodeStatus(addresses=[core_v1.NodeAddress(type="InternalIP", address="10.0.0.2")]),
    )
    read = serialize.decode(serialize.encode(whole), SlimNode)
    assert read.spec.pod_cidrs == whole.spec.pod_cidrs
    assert read.spec.pod_cidr == "10.244.1.0/24"
    assert [(each.type, each.address) for each in read.status.addresses] == [("InternalIP", "10.0.0.2")]
