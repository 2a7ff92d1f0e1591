"""Reads and writes the routes to other nodes in the kernel: iproute2's JSON, one batch of changes a tool.

Wherry's entries are identified by the protocol number of routes and by the tunnel's device. Entries are added in the order
in which packets use them and removed in the reverse order, so no packet uses an incomplete path.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Any

from kube.process import run
from netproxy import sysctl
from netproxy.iproute import show
from netproxy.podnet import tunnel_guard
from netproxy.podnet.cluster_routes import PROTOCOL
from netproxy.podnet.node_routes import DEVICE, FdbEntry, Neighbour, NodeRoutes, Route, Tunnel
from netproxy.podnet.peers import Link


async def read_links(ignored: Collection[str]) -> list[Link]:
    """Return the networks of the devices that are up; `ignored` devices are the cluster's own."""
    links = []
    for device in await show("ip", "-j", "address", "show", "up", "scope", "global"):
        name, flags = device.get("ifname", ""), device.get("flags", ())
        if name in ignored or "LOOPBACK" in flags:
            continue
        ethernet = device.get("link_type") == "ether" and "NOARP" not in flags
        for each in device.get("addr_info", ()):
            # An address with a peer of its own says nothing of a link.
            if "local" in each and "address" not in each:
                address = ipaddress.ip_address(each["local"])
                network = ipaddress.ip_network(f"{address}/{each['prefixlen']}", strict=False)
                alone = network.num_addresses == 1
                links.append(Link(name, address, network, int(device.get("mtu", 1500)), ethernet and not alone))
    return links


async def read_routes(families: Collection[int]) -> NodeRoutes:
    """Return the entries of Wherry in the kernel."""
    routes = set()
    for family in families:
        for each in await show("ip", f"-{family}", "-j", "route", "show", "proto", str(PROTOCOL)):
            if "gateway" in each:
                routes.add(Route(each["dst"], each["gateway"], each.get("dev", "")))
    neighbours, fdb_entries = set(), set()
    for each in await show("ip", "-j", "neigh", "show", "dev", DEVICE, "nud", "permanent"):
        if "lladdr" in each:
            neighbours.add(Neighbour(each["dst"], each["lladdr"]))
    for each in await show("bridge", "-j", "fdb", "show", "dev", DEVICE):
        if "dst" in each:
            fdb_entries.add(FdbEntry(each["mac"], each["dst"]))
    return NodeRoutes(frozenset(routes), frozenset(neighbours), frozenset(fdb_entries))


def difference(held: NodeRoutes, wanted: NodeRoutes) -> tuple[list[str], list[str], list[str]]:
    """Return the batches that change one state into the other, in their order: `ip`, `bridge` and `ip` lines."""
    first: list[str] = []
    bridge: list[str] = []
    last: list[str] = []
    kept = {route.cidr: route for route in wanted.routes}
    for route in sorted(held.routes - wanted.routes):
        new = kept.get(route.cidr)
        # A route is replaced in one step, but that IPv6 refuses a tunnel's end that another device still leads to.
        if new is None or (":" in route.cidr and new.device == DEVICE != route.device):
            first.append(f"route del {route.cidr} via {route.via} dev {route.device} proto {PROTOCOL}")
    addresses = {each.address for each in wanted.neighbours}
    for neighbour in sorted(held.neighbours - wanted.neighbours):
        if neighbour.address not in addresses:
            first.append(f"neigh del {neighbour.address} dev {DEVICE}")
    macs = {each.mac for each in wanted.fdb_entries}
    for forward in sorted(held.fdb_entries - wanted.fdb_entries):
        if forward.mac not in macs:
            bridge.append(f"fdb del {forward.mac} dev {DEVICE} dst {forward.destination}")
    for forward in sorted(wanted.fdb_entries - held.fdb_entries):
        bridge.append(f"fdb replace {forward.mac} dev {DEVICE} dst {forward.destination}")
    for neighbour in sorted(wanted.neighbours - held.neighbours):
        last.append(f"neigh replace {neighbour.address} lladdr {neighbour.mac} dev {DEVICE} nud permanent")
    for route in sorted(wanted.routes - held.routes):
        direct = " onlink" if route.device == DEVICE else ""
        last.append(f"route replace {route.cidr} via {route.via} dev {route.device}{direct} proto {PROTOCOL}")
    return first, bridge, last


async def change(held: NodeRoutes, wanted: NodeRoutes) -> int:
    """Apply the difference to the kernel; return the number of changed entries. Raises CommandError if any is rejected."""
    first, bridge, last = difference(held, wanted)
    for tool, lines in (("ip", first), ("bridge", bridge), ("ip", last)):
        if lines:
            await run([tool, "-force", "-batch", "-"], input="\n".join(lines) + "\n")
    return len(first) + len(bridge) + len(last)


async def remove(families: Collection[int] = (4, 6)) -> None:
    """Remove all routes to other nodes, and the tunnel."""
    await change(await read_routes(families), NodeRoutes())
    await ensure_tunnel(None)
    await tunnel_guard.remove()


async def ensure_tunnel(tunnel: Tunnel | None) -> bool:
    """Configure the tunnel's device; return whether it was recreated, which removes its entries."""
    held = await show("ip", "-d", "-j", "link", "show", "dev", DEVICE)
    if tunnel is None:
        if held:
            await run(["ip", "link", "del", "dev", DEVICE], check=False)
        return bool(held)
    made = False
    if not held or not _same(held[0], tunnel):
        if held:
            await run(["ip", "link", "del", "dev", DEVICE])
        made = True
        kind = ["type", "vxlan", "id", str(tunnel.vni), "local", tunnel.local, "dstport", str(tunnel.port)]
        await run(["ip", "link", "add", DEVICE, "address", tunnel.mac, "mtu", str(tunnel.mtu), *kind, "nolearning"])
        # No link-local address: nobody there would answer the questions that come with one.
        await run(["ip", "link", "set", "dev", DEVICE, "addrgenmode", "none"], check=False)
    if made or held[0].get("mtu") != tunnel.mtu or "UP" not in held[0].get("flags", ()):
        await run(["ip", "link", "set", "dev", DEVICE, "mtu", str(tunnel.mtu), "up"])
    # What comes by the tunnel may be answered by a link where the nodes' netmasks differ.
    sysctl.ensure(f"net/ipv4/conf/{DEVICE}/rp_filter", "2")
    await _ensure_addresses(tunnel.addresses)
    return made


def _same(held: dict[str, Any], tunnel: Tunnel) -> bool:
    info = held.get("linkinfo", {})
    data = info.get("info_data", {})
    return (info.get("info_kind"), held.get("address"), data.get("id"), data.get("port"), data.get("learning")) == (
        "vxlan",
        tunnel.mac,
        tunnel.vni,
        tunnel.port,
        False,
    ) and tunnel.local in (data.get("local"), data.get("local6"))


async def _ensure_addresses(wanted: Collection[str]) -> None:
    held = {
        f"{each['local']}"
        for device in await show("ip", "-j", "address", "show", "dev", DEVICE, "scope", "global")
        for each in device.get("addr_info", ())
        if "local" in each
    }
    lines = [f"address del {address}{_host(address)} dev {DEVICE}" for address in sorted(held - set(wanted))]
    for address in sorted(set(wanted) - held):
        lines.append(f"address add {address}{_host(address)} dev {DEVICE}" + (" nodad" if ":" in address else ""))
    if lines:
        await run(["ip", "-force", "-batch", "-"], input="\n".join(lines) + "\n")


def _host(address: str) -> str:
    return "/128" if ":" in address else "/32"
