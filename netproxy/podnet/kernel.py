"""The ways to other nodes in the kernel: read with iproute2's JSON, changed by the difference in one batch a tool.

What is ours is known by the protocol number of routes and by the tunnel's device. Entries are added in the order in which
packets need them and removed in the other, so nobody is sent where nothing leads on.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Collection
from typing import Any

from kube.process import run
from netproxy import sysctl
from netproxy.podnet import guard
from netproxy.podnet.peers import Link
from netproxy.podnet.routes import PROTOCOL
from netproxy.podnet.ways import DEVICE, Forward, Neighbour, Route, Tunnel, Ways


async def _json(*argv: str) -> list[dict[str, Any]]:
    """Return what a command of iproute2 lists; nothing where it fails, as for a device that is not there."""
    done = await run(argv, check=False)
    found = json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else []
    return [each for each in found if each]


async def read_links(ignored: Collection[str]) -> list[Link]:
    """Return the networks that this node is on by devices that are up; `ignored` devices are the cluster's own."""
    links = []
    for device in await _json("ip", "-j", "address", "show", "up", "scope", "global"):
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


async def read_ways(families: Collection[int]) -> Ways:
    """Return what the kernel holds of ours."""
    routes = set()
    for family in families:
        for each in await _json("ip", f"-{family}", "-j", "route", "show", "proto", str(PROTOCOL)):
            if "gateway" in each:
                routes.add(Route(each["dst"], each["gateway"], each.get("dev", "")))
    neighbours, forwards = set(), set()
    for each in await _json("ip", "-j", "neigh", "show", "dev", DEVICE, "nud", "permanent"):
        if "lladdr" in each:
            neighbours.add(Neighbour(each["dst"], each["lladdr"]))
    for each in await _json("bridge", "-j", "fdb", "show", "dev", DEVICE):
        if "dst" in each:
            forwards.add(Forward(each["mac"], each["dst"]))
    return Ways(frozenset(routes), frozenset(neighbours), frozenset(forwards))


def difference(held: Ways, wanted: Ways) -> tuple[list[str], list[str], list[str]]:
    """Return the batches that lead from one to the other, in their order: `ip` lines, `bridge` lines, `ip` lines."""
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
    macs = {each.mac for each in wanted.forwards}
    for forward in sorted(held.forwards - wanted.forwards):
        if forward.mac not in macs:
            bridge.append(f"fdb del {forward.mac} dev {DEVICE} dst {forward.destination}")
    for forward in sorted(wanted.forwards - held.forwards):
        bridge.append(f"fdb replace {forward.mac} dev {DEVICE} dst {forward.destination}")
    for neighbour in sorted(wanted.neighbours - held.neighbours):
        last.append(f"neigh replace {neighbour.address} lladdr {neighbour.mac} dev {DEVICE} nud permanent")
    for route in sorted(wanted.routes - held.routes):
        direct = " onlink" if route.device == DEVICE else ""
        last.append(f"route replace {route.cidr} via {route.via} dev {route.device}{direct} proto {PROTOCOL}")
    return first, bridge, last


async def change(held: Ways, wanted: Ways) -> int:
    """Bring the kernel from one to the other; return how many entries changed. CommandError where any was refused."""
    first, bridge, last = difference(held, wanted)
    for tool, lines in (("ip", first), ("bridge", bridge), ("ip", last)):
        if lines:
            await run([tool, "-force", "-batch", "-"], input="\n".join(lines) + "\n")
    return len(first) + len(bridge) + len(last)


async def remove(families: Collection[int] = (4, 6)) -> None:
    """Remove all ways to other nodes, and the tunnel."""
    await change(await read_ways(families), Ways())
    await ensure_tunnel(None)
    await guard.remove()


async def ensure_tunnel(tunnel: Tunnel | None) -> bool:
    """Make the tunnel's device what it should be; return whether it was made anew, and so has no entries."""
    held = await _json("ip", "-d", "-j", "link", "show", "dev", DEVICE)
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
        for device in await _json("ip", "-j", "address", "show", "dev", DEVICE, "scope", "global")
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
