"""Links, routes, neighbours and FDB entries of a real kernel, as iproute2 shows them; errors, and notices that are lost."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator

import pytest

from netproxy import local_addresses, netlink, rtnetlink_tables
from netproxy import rtnetlink_requests as requests
from netproxy.podnet import cluster_routes, kernel_routes, source_guard
from netproxy.podnet.node_routes import DEVICE, FdbEntry, Neighbour, NodeRoutes, Route, Tunnel
from netproxy.podnet.rtnetlink import RouteMonitor
from tests.support.netns import Namespace, namespaces

MAC, OTHER_MAC = "0a:58:0a:f4:02:00", "0a:58:0a:f4:03:00"
TUNNEL = Tunnel("0a:58:0a:f4:01:00", "10.9.0.1", ("10.244.1.0", "fd00:0:0:1::"), 1430, 8472, 1)
ROUTES = NodeRoutes(
    frozenset(
        {
            Route("10.244.2.0/24", "10.244.2.0", DEVICE),
            Route("fd00:0:0:2::/64", "fd00:0:0:2::", DEVICE),
            Route("10.244.3.0/24", "10.9.0.3", "uplink"),
            Route("10.244.4.7/32", "10.9.0.4", "uplink"),
        }
    ),
    frozenset({Neighbour("10.244.2.0", MAC), Neighbour("fd00:0:0:2::", MAC)}),
    frozenset({FdbEntry(MAC, "10.9.0.2")}),
)


@pytest.fixture
def node() -> Iterator[Namespace]:
    with namespaces(f"np-{os.getpid()}-rtnetlink") as (made,):
        made.run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "other")
        for device in ("uplink", "other"):
            made.run("ip", "link", "set", device, "up")
        made.run("ip", "address", "add", "10.9.0.1/16", "dev", "uplink")
        made.run("ip", "address", "add", "fd99::1/64", "dev", "uplink", "nodad")
        yield made


def test_routes_to_nodes_are_written_read_and_removed(node: Namespace) -> None:
    async def work() -> None:
        assert await kernel_routes.ensure_tunnel(TUNNEL)
        assert not await kernel_routes.ensure_tunnel(TUNNEL)
        assert await kernel_routes.change(NodeRoutes(), ROUTES) == 7
        assert await kernel_routes.read_routes((4, 6)) == ROUTES
        # All of them are there: written again they are no error, nor is a deletion of what is not there.
        assert await kernel_routes.change(NodeRoutes(), ROUTES) == 7
        gone = NodeRoutes(frozenset({Route("10.244.99.0/24", "10.9.0.9", "uplink")}), frozenset(), frozenset())
        assert await kernel_routes.change(gone, NodeRoutes()) == 1

    node.inside(work)
    link = node.run("ip", "-d", "link", "show", "dev", DEVICE)
    assert "vxlan id 1 local 10.9.0.1" in link and "dstport 8472 nolearning" in link and "addrgenmode none" in link
    assert "mtu 1430" in link and ",UP" in link and TUNNEL.mac in link
    routes = node.run("ip", "route", "show", "proto", "87") + node.run("ip", "-6", "route", "show", "proto", "87")
    assert sorted(line.strip() for line in routes.splitlines()) == [
        f"10.244.2.0/24 via 10.244.2.0 dev {DEVICE} onlink",
        "10.244.3.0/24 via 10.9.0.3 dev uplink",
        "10.244.4.7 via 10.9.0.4 dev uplink",
        f"fd00:0:0:2::/64 via fd00:0:0:2:: dev {DEVICE} metric 1024 onlink pref medium",
    ]
    assert f"{MAC} dst 10.9.0.2 self permanent" in node.run("bridge", "fdb", "show", "dev", DEVICE)
    assert node.run("ip", "neigh", "show", "dev", DEVICE, "nud", "permanent").count(MAC) == 2
    addresses = node.run("ip", "address", "show", "dev", DEVICE)
    assert "inet 10.244.1.0/32 scope global" in addresses and "inet6 fd00:0:0:1::/128 scope global nodad" in addresses
    node.inside(kernel_routes.remove)
    assert not node.run("ip", "route", "show", "proto", "87") and DEVICE not in node.run("ip", "link")


def test_a_tunnel_that_others_changed_is_made_again_and_its_addresses_are_put_right(node: Namespace) -> None:
    async def ensure() -> bool:
        return await kernel_routes.ensure_tunnel(TUNNEL)

    assert node.inside(ensure)
    node.run("ip", "address", "del", "10.244.1.0/32", "dev", DEVICE)
    node.run("ip", "address", "add", "10.244.77.0/32", "dev", DEVICE)
    node.run("ip", "link", "set", DEVICE, "mtu", "1400", "down")
    assert not node.inside(ensure)
    shown = node.run("ip", "address", "show", "dev", DEVICE)
    assert "10.244.1.0/32" in shown and "10.244.77.0" not in shown and "mtu 1430" in shown and ",UP" in shown
    node.run("ip", "link", "set", DEVICE, "address", OTHER_MAC)
    assert node.inside(ensure)
    node.run("ip", "link", "del", DEVICE)
    node.run("ip", "link", "add", DEVICE, "type", "bridge")
    assert node.inside(ensure) and "vxlan id 1" in node.run("ip", "-d", "link", "show", "dev", DEVICE)


def test_a_refused_route_is_named_and_the_others_are_written(node: Namespace) -> None:
    wanted = {Route("10.244.3.0/24", "10.9.0.3", "uplink"), Route("10.244.2.0/24", "10.55.0.1", "uplink")}
    wanted |= {Route("10.244.5.0/24", "10.9.0.3", "nothing")}

    async def work() -> None:
        with pytest.raises(
            OSError, match=r"route replace 10.244.5.0/24 via 10.9.0.3 dev nothing: No such device, and 1 more"
        ):
            await kernel_routes.change(NodeRoutes(), NodeRoutes(frozenset(wanted)))

    node.inside(work)
    assert node.run("ip", "route", "show", "proto", "87").strip() == "10.244.3.0/24 via 10.9.0.3 dev uplink"


def test_routes_of_the_clusters_ranges_are_installed_again_and_removed(node: Namespace) -> None:
    async def install() -> None:
        for _ in range(2):
            await cluster_routes.install(
                ("10.244.0.0/16", "fd00::/48"), ("10.96.0.0/12", "fd96::/112"), source="10.9.0.1", mtu=1450
            )
        assert cluster_routes.installed(("10.244.0.0/16", "10.96.0.0/12", "fd96::/112"))
        assert await cluster_routes.uplink_mtu(1234) == 1234

    node.inside(install)
    routes = node.run("ip", "route", "show", "proto", "87") + node.run("ip", "-6", "route", "show", "proto", "87")
    assert sorted(line.strip() for line in routes.splitlines()) == [
        "10.96.0.0/12 dev wherry0 scope link src 10.9.0.1 metric 65535",
        "fd96::/112 dev wherry0 metric 65535 pref medium",
        "unreachable 10.244.0.0/16 metric 65535",
        "unreachable fd00::/48 dev lo metric 65535 pref medium",
    ]
    node.run("ip", "link", "set", "uplink", "mtu", "1300")
    node.run("ip", "route", "add", "default", "via", "10.9.0.9")

    async def remove() -> None:
        assert await cluster_routes.uplink_mtu() == 1300
        await cluster_routes.remove_routes()
        await cluster_routes.remove_routes()

    node.inside(remove)
    assert not node.run("ip", "route", "show", "proto", "87") and "wherry0" not in node.run("ip", "link")


def test_links_are_read_with_their_networks(node: Namespace) -> None:
    node.run("ip", "address", "add", "10.77.0.1", "peer", "10.77.0.2/32", "dev", "other")
    node.run("ip", "link", "add", "idle", "type", "bridge")
    node.run("ip", "address", "add", "10.78.0.1/24", "dev", "idle")

    async def work() -> list[tuple[str, str, int, bool]]:
        assert "10.77.0.1" in await local_addresses.global_addresses()
        found = await kernel_routes.read_links(())
        assert not await kernel_routes.read_links(("uplink",))
        return [(each.device, str(each.network), each.mtu, each.ethernet) for each in found]

    assert node.inside(work) == [("uplink", "10.9.0.0/16", 1500, True), ("uplink", "fd99::/64", 1500, True)]


def test_local_addresses_are_added_and_removed_twice(node: Namespace) -> None:
    async def add() -> None:
        for address in ("10.96.0.10", "fd96::a") * 2:
            await local_addresses.add_local_address(address)

    async def remove() -> None:
        for address in ("10.96.0.10", "fd96::a") * 2:
            await local_addresses.remove_local_address(address)

    node.inside(add)
    shown = node.run("ip", "address", "show", "dev", "lo")
    assert "inet 10.96.0.10/32 scope host lo" in shown and "inet6 fd96::a/128" in shown and ",UP" in shown
    node.inside(remove)
    shown = node.run("ip", "address", "show", "dev", "lo")
    assert "10.96.0.10" not in shown and "fd96::a" not in shown


def test_ports_of_a_bridge_are_listed_and_its_options_set(node: Namespace) -> None:
    node.run("ip", "link", "add", "cni0", "type", "bridge")
    node.run("ip", "link", "set", "uplink", "master", "cni0")
    assert node.inside(lambda: source_guard._veths_of("cni0")) == {"uplink"}

    async def set_options(mask: int, learn: bool) -> None:
        number = netlink.interface_index("cni0")
        await source_guard._change_link(requests.set_bridge(number, mask, link_local_learn=learn))

    node.inside(lambda: set_options(1 << 14, False))
    shown = node.run("ip", "-d", "link", "show", "dev", "cni0")
    assert "group_fwd_mask 0x4000" in shown and "no_linklocal_learn 1" in shown
    node.inside(lambda: set_options(0, True))
    shown = node.run("ip", "-d", "link", "show", "dev", "cni0")
    assert "group_fwd_mask 0 " in shown and "no_linklocal_learn 0" in shown


def test_a_device_that_is_there_or_not_there_is_an_error_of_its_request_alone(node: Namespace) -> None:
    def work(connection: socket.socket) -> list[int]:
        changes = [
            requests.add_link("uplink", "bridge", 1500),
            requests.delete_link(9999),
            requests.set_up(netlink.interface_index("uplink"), 1400),
            requests.delete_neighbour("10.9.0.77", netlink.interface_index("uplink")),
        ]
        assert rtnetlink_tables.link(connection, "nothing") is None
        assert rtnetlink_tables.link(connection, "uplink-with-a-long-name") is None
        return [error.errno or 0 if error else 0 for error in netlink.change(connection, changes)]

    async def run() -> list[int]:
        return await netlink.in_thread(work)

    assert node.inside(run) == [errno.EEXIST, errno.ENODEV, 0, errno.ENOENT]
    assert "mtu 1400" in node.run("ip", "link", "show", "dev", "uplink")


def test_a_monitor_that_is_too_slow_takes_everything_for_changed(node: Namespace) -> None:
    """The kernel drops notices past the socket's buffer, and reports it once (ENOBUFS)."""

    async def work() -> list[bool]:
        changes: list[bool] = []
        monitor = RouteMonitor(lambda *, links: changes.append(links))
        monitor.start()
        assert monitor._socket is not None
        monitor._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        # Notices are written while the loop reads none of them.
        connection = netlink.connect(netlink.ROUTE)
        with connection:
            number = netlink.interface_index("other")
            assert (
                netlink.change(connection, [requests.set_up(number, 1400 + n % 2) for n in range(200)]) == [None] * 200
            )
        async with asyncio.timeout(20):
            while not changes:
                await asyncio.sleep(0.01)
        monitor.close()
        return changes

    assert True in node.inside(work)


def test_a_namespace_that_is_deleted_meanwhile_is_read_and_left_without_waiting() -> None:
    """A thread keeps its namespace until it ends; all devices but its own are gone only then."""
    with namespaces(f"np-{os.getpid()}-goes") as (node,):
        node.run("ip", "link", "add", "uplink", "type", "bridge")

        async def work() -> None:
            await asyncio.to_thread(node.delete)
            assert await kernel_routes.ensure_tunnel(TUNNEL)
            assert await kernel_routes.read_routes((4, 6)) == NodeRoutes()
            with pytest.raises(OSError, match="route replace"):
                await kernel_routes.change(
                    NodeRoutes(), NodeRoutes(frozenset({Route("10.1.0.0/24", "10.9.0.1", "gone")}))
                )
            await kernel_routes.ensure_tunnel(None)

        node.inside(work)
