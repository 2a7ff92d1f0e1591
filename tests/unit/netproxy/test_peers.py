"""Routes to other nodes' pods, as tables of nodes and links in, routes and tunnel entries out."""

import ipaddress
import struct
from dataclasses import replace

import pytest

from kube.api import core_v1
from netproxy import netlink
from netproxy.podnet import kernel_routes, rtnetlink
from netproxy.podnet.node_routes import (
    DEVICE,
    FdbEntry,
    Neighbour,
    NodeRoutes,
    Route,
    accepted_addresses,
    plan,
    pod_mtu,
    tunnel_mac,
)
from netproxy.podnet.peers import Link, Network, Peer, peer_of
from tests.support.services import node

CLUSTER = (ipaddress.ip_network("10.244.0.0/16"), ipaddress.ip_network("fd00::/48"))


def link(device: str, address: str, mtu: int = 1500, ethernet: bool = True) -> Link:
    interface = ipaddress.ip_interface(address)
    return Link(device, interface.ip, interface.network, mtu, ethernet)


def peer(name: str, pods: str, *addresses: str) -> Peer:
    return Peer(
        name,
        tuple(ipaddress.ip_network(each) for each in pods.split()),
        tuple(ipaddress.ip_address(each) for each in addresses),
    )


OWN = peer("a", "10.244.0.0/24", "192.168.1.1")
ETH0 = link("eth0", "192.168.1.1/24")
NEAR = peer("b", "10.244.1.0/24", "192.168.1.2")
FAR = peer("c", "10.244.2.0/24", "192.168.9.3")
GATEWAY = Route("10.244.1.0/24", "192.168.1.2", "eth0")
TUNNELLED = Route("10.244.2.0/24", "10.244.2.0", DEVICE)


def ways(*others: Peer, mode: str = "auto", own: Peer = OWN, links: tuple[Link, ...] = (ETH0,)) -> NodeRoutes:
    return plan(own, [own, *others], links, mode=mode, cluster_cidrs=CLUSTER)


@pytest.mark.parametrize(
    ("mode", "routes"),
    [
        ("auto", {GATEWAY, TUNNELLED}),
        ("host-gw", {GATEWAY}),
        ("vxlan", {Route("10.244.1.0/24", "10.244.1.0", DEVICE), TUNNELLED}),
        ("none", set()),
    ],
)
def test_a_node_on_our_link_is_the_next_hop_and_others_are_behind_the_tunnel(mode: str, routes: set[Route]) -> None:
    found = ways(NEAR, FAR, mode=mode)
    assert found.routes == routes
    assert (found.tunnel is not None) == (mode in ("auto", "vxlan"))
    assert set(found.unreachable) == ({"c"} if mode == "host-gw" else set())


def test_tunnel_entries_follow_from_the_other_nodes_pod_range_and_address_alone() -> None:
    found = ways(FAR)
    mac = "0a:58:0a:f4:02:00"
    assert found.neighbours == {Neighbour("10.244.2.0", mac)}
    assert found.fdb_entries == {FdbEntry(mac, "192.168.9.3")}
    assert found.tunnel is not None
    # What the other node puts at its end is what we expect there.
    theirs = ways(OWN, own=FAR, links=(link("eth0", "192.168.9.3/24", mtu=9000),)).tunnel
    assert theirs is not None
    assert (theirs.mac, theirs.addresses, theirs.local) == (mac, ("10.244.2.0",), "192.168.9.3")
    assert (found.tunnel.mtu, theirs.mtu) == (1450, 8950)


def test_without_a_distant_node_there_is_no_tunnel() -> None:
    assert ways(NEAR).tunnel is None
    assert ways().tunnel is None
    assert ways(mode="vxlan").tunnel is not None


def test_the_narrowest_link_wins_and_the_nodes_own_among_equals() -> None:
    wide, other = link("eth1", "192.168.1.200/16"), link("eth2", "192.168.1.77/24")
    assert ways(NEAR, links=(wide, other, ETH0)).routes == {GATEWAY}
    assert ways(peer("b", "10.244.1.0/24", "192.168.5.5"), links=(wide, ETH0)).routes == {
        Route("10.244.1.0/24", "192.168.5.5", "eth1")
    }


def test_a_device_without_ethernet_has_no_neighbours_to_route_through() -> None:
    assert ways(NEAR, links=(link("wg0", "192.168.1.1/24", 1420, ethernet=False),)).routes == {
        Route("10.244.1.0/24", "10.244.1.0", DEVICE)
    }


def test_both_families_go_their_own_way() -> None:
    own = peer("a", "10.244.0.0/24 fd00:0:0:1::/64", "192.168.1.1", "fd99::1")
    links = (ETH0, link("eth0", "fd99::1/64"))
    both = peer("b", "10.244.1.0/24 fd00:0:0:2::/64", "192.168.1.2", "fd99::2")
    assert ways(both, own=own, links=links).routes == {GATEWAY, Route("fd00:0:0:2::/64", "fd99::2", "eth0")}
    # A node that is known by its IPv4 address alone still gets IPv6, inside the tunnel between IPv4 addresses.
    four = peer("b", "10.244.1.0/24 fd00:0:0:2::/64", "192.168.1.2")
    found = ways(four, own=own, links=links)
    assert found.routes == {GATEWAY, Route("fd00:0:0:2::/64", "fd00:0:0:2::", DEVICE)}
    assert found.fdb_entries == {FdbEntry(tunnel_mac(four.pods[0]), "192.168.1.2")}
    assert found.tunnel is not None
    assert found.tunnel.addresses == ("10.244.0.0", "fd00:0:0:1::")


def test_tunnel_macs_are_locally_administered_and_differ() -> None:
    pods = [ipaddress.ip_network(f"10.244.{n}.0/24") for n in range(50)]
    macs = {tunnel_mac(each) for each in [*pods, *(ipaddress.ip_network(f"fd00:0:0:{n:x}::/64") for n in range(50))]}
    assert len(macs) == 100
    assert {int(mac[:2], 16) & 3 for mac in macs} == {2}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (peer("x", "0.0.0.0/0", "192.168.1.9"), "outside of the cluster's"),
        (peer("x", "10.0.0.0/8", "192.168.1.9"), "outside of the cluster's"),
        (peer("x", "192.168.1.0/24", "192.168.1.9"), "outside of the cluster's"),
        (peer("x", "10.244.0.0/24", "192.168.1.9"), "overlaps that of a"),
        (peer("x", "10.244.0.128/25", "192.168.1.9"), "overlaps that of a"),
        (peer("x", "10.244.1.0/24", "192.168.1.9"), "overlaps that of b"),
        (peer("x", "10.244.3.0/24", "192.168.1.1"), "this node's own"),
        (peer("x", "10.244.3.0/24", "10.244.0.5"), "the cluster's pod range"),
        (peer("x", "10.244.3.0/24"), "no address that"),
    ],
)
def test_a_node_cannot_draw_in_what_is_not_its_own(other: Peer, why: str) -> None:
    found = ways(NEAR, other)
    assert found.routes == {GATEWAY}
    assert why in found.unreachable["x"]


@pytest.mark.parametrize("cidrs", [CLUSTER, ()])
@pytest.mark.parametrize("address", ["10.244.0.9", "192.168.1.7"])
def test_no_node_lets_a_pod_or_another_device_of_this_node_send_to_the_tunnel(
    address: str, cidrs: tuple[Network, ...]
) -> None:
    """A compromised kubelet can name any address as its node's."""
    liar, links = peer("x", "10.244.3.0/24", address, "fd99::9"), (ETH0, link("eth1", "192.168.1.7/24"))
    accepted = accepted_addresses(OWN, [OWN, NEAR, liar], links, cidrs)
    assert accepted == {*OWN.addresses, *NEAR.addresses}


def test_an_own_address_that_another_node_names_too_is_still_accepted() -> None:
    assert accepted_addresses(OWN, [OWN, peer("x", "10.244.3.0/24", "192.168.1.1")], (ETH0,), CLUSTER) == {
        *OWN.addresses
    }


def known(name: str, pods: str, address: str, created: str, uid: str = "") -> Peer:
    return replace(peer(name, pods, address), created=f"2026-01-0{created}T00:00:00Z", uid=uid or f"uid-{name}")


@pytest.mark.parametrize(
    "claimed", ["10.244.1.0/24", "10.244.1.0/25", "10.244.1.128/25", "10.244.1.77/32", "10.244.0.0/22"]
)
def test_a_pod_range_stays_with_the_node_that_has_it(claimed: str) -> None:
    """Whatever the other's name and age, and whatever part of it the other names."""
    owner = known("m", "10.244.1.0/24", "192.168.1.2", "5")
    first = ways(owner)
    for name, created in (("b", "1"), ("z", "9")):
        thief = known(name, claimed, "192.168.1.9", created)
        found = plan(OWN, [OWN, thief, owner], [ETH0], cluster_cidrs=CLUSTER, owners=first.owners)
        assert found.routes == {GATEWAY}
        assert found.refused == {(name, ipaddress.ip_network(claimed))}
        again = plan(OWN, [OWN, thief, owner], [ETH0], cluster_cidrs=CLUSTER, owners=found.owners)
        assert again == found
        # Once the owner is gone, whoever names the range has it.
        after = plan(OWN, [OWN, thief], [ETH0], cluster_cidrs=CLUSTER, owners=found.owners)
        assert {route.via for route in after.routes} == ({"192.168.1.9"} if claimed != "10.244.0.0/22" else set())


def test_of_two_new_nodes_the_older_has_the_range() -> None:
    older, younger = known("z", "10.244.1.0/24", "192.168.1.2", "1"), known("b", "10.244.1.0/24", "192.168.1.9", "2")
    assert ways(younger, older).routes == {GATEWAY}
    # A Node object recreated under the owner's name is another node.
    remade = replace(known("z", "10.244.1.0/24", "192.168.1.2", "3"), uid="uid-other")
    found = plan(OWN, [OWN, remade, younger], [ETH0], cluster_cidrs=CLUSTER, owners=ways(older).owners)
    assert {route.via for route in found.routes} == {"192.168.1.9"}


def test_nodes_are_read_from_their_objects() -> None:
    made = node("b", "10.244.1.0/24", "192.168.1.2")
    made.metadata.uid, made.metadata.creation_timestamp = "uid-b", "2026-01-01T00:00:00Z"
    assert peer_of(made) == replace(NEAR, uid="uid-b", created="2026-01-01T00:00:00Z")
    for bad in ("127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "::ffff:a9fe:1", "elsewhere"):
        made.status.addresses = [core_v1.NodeAddress(type="InternalIP", address=bad)]
        assert peer_of(made).addresses == ()
    made.status.addresses = [core_v1.NodeAddress(type="ExternalIP", address="1.2.3.4")]
    assert peer_of(made).addresses == ()
    for bad in ("not a range", "fd00:2::%eth0/64"):
        assert peer_of(node("b", bad)).pods == ()


@pytest.mark.parametrize(("mode", "mtu"), [("auto", 1450), ("vxlan", 1450), ("host-gw", 1500), ("none", 1500)])
def test_pods_leave_room_for_the_tunnel_where_there_may_be_one(mode: str, mtu: int) -> None:
    assert pod_mtu(mode, OWN, 1500) == mtu
    assert pod_mtu(mode, peer("a", "", "fd99::1"), 1520) == mtu + 20 - (20 if mtu == 1450 else 0)


def test_a_change_is_written_as_a_difference_entries_before_the_routes_that_need_them() -> None:
    assert changes(NodeRoutes(), ways(NEAR, FAR)) == [
        "fdb replace 0a:58:0a:f4:02:00 dst 192.168.9.3",
        "neigh replace 10.244.2.0 lladdr 0a:58:0a:f4:02:00",
        "route replace 10.244.1.0/24 via 192.168.1.2 dev eth0",
        f"route replace 10.244.2.0/24 via 10.244.2.0 dev {DEVICE}",
    ]
    assert changes(ways(NEAR, FAR), ways(NEAR, FAR)) == []
    # A node that moves is one replacement, without a moment when nothing leads to it.
    moved = peer("b", "10.244.1.0/24", "192.168.1.22")
    assert changes(ways(NEAR), ways(moved)) == ["route replace 10.244.1.0/24 via 192.168.1.22 dev eth0"]
    assert changes(ways(NEAR, FAR), ways(NEAR)) == [
        f"route del 10.244.2.0/24 via 10.244.2.0 dev {DEVICE}",
        "neigh del 10.244.2.0 lladdr 0a:58:0a:f4:02:00",
        "fdb del 0a:58:0a:f4:02:00 dst 192.168.9.3",
    ]


def changes(held: NodeRoutes, wanted: NodeRoutes) -> list[str]:
    return [str(each) for each in kernel_routes.difference(held, wanted)]


def test_one_node_of_many_is_three_changes() -> None:
    others = [peer(f"n{n}", f"10.244.{n}.0/24", f"192.168.{n % 3}.{n}") for n in range(2, 250)]
    assert len(changes(ways(*others), ways(*others[1:]))) == 3  # route, neighbour, FDB entry


def notice(kind: int, body: bytes, flags: int = 0) -> bytes:
    data = struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body
    return data + b"\0" * (-len(data) % 4)


ROUTE = bytes([2, 24, 0, 0, 254, 87, 0, 1]) + bytes(4)
FOREIGN = bytes([2, 24, 0, 0, 254, 4, 0, 1]) + bytes(4)


def device(number: int, family: int = 0, scope: int = 0) -> bytes:
    return struct.pack("=BBBBi", family, 0, 0, scope, number)


@pytest.mark.parametrize(
    ("kind", "body", "flags", "ours"),
    [
        (rtnetlink.DELROUTE, ROUTE, 0, True),
        (rtnetlink.DELROUTE, FOREIGN, 0, False),
        (rtnetlink.NEWROUTE, ROUTE, 0, False),
        (rtnetlink.NEWROUTE, FOREIGN, rtnetlink.REPLACED, True),
        (rtnetlink.NEWLINK, device(2), 0, True),
        (rtnetlink.NEWLINK, device(77), 0, False),  # a pod's
        (rtnetlink.DELLINK, device(9), 0, True),
        (rtnetlink.NEWADDR, device(77, 2, 0), 0, True),
        (rtnetlink.NEWADDR, device(77, 10, 253), 0, False),  # link-local, as every pod's device gets
        (rtnetlink.DELNEIGH, device(9), 0, True),
        (rtnetlink.DELNEIGH, device(2), 0, False),
        (rtnetlink.DELNEIGH, b"", 0, False),
    ],
)
def test_only_notices_that_may_concern_us_cause_a_comparison(kind: int, body: bytes, flags: int, ours: bool) -> None:
    (read,) = netlink.messages(notice(kind, body, flags))
    assert rtnetlink.concerns(*read, links={2, 3}, tunnel=9) is ours


def test_several_notices_are_read_from_one_datagram() -> None:
    data = notice(rtnetlink.DELROUTE, ROUTE) + notice(rtnetlink.NEWLINK, device(5) + b"x")
    assert [kind for kind, _, _ in netlink.messages(data)] == [rtnetlink.DELROUTE, rtnetlink.NEWLINK]
