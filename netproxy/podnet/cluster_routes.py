"""Routes for the cluster's pod and service ranges, which keep their packets on the node, set with iproute2.

Packets to cluster addresses must not leave the cluster. The pod range as a whole has an unreachable route, besides the more
specific routes to this node's bridge and to other nodes. The route of the service range is to a bridge without ports (which
every kernel has, unlike dummy links): the node can then open a connection to a cluster IP without a default route, DNAT sends
it to an endpoint, and untranslated packets are dropped, also while the rules are missing. Two simpler devices do not work: for
packets to loopback the kernel sends no ICMP errors, and for packets routed back to the pods' bridge it sends redirects instead
of errors; a rejection would look like a timeout. All routes carry a protocol number, by which they are found again.

Commands are used instead of a netlink library, which would take 24 MB of resident memory.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Sequence

from kube.process import run
from netproxy.iproute import show

PROTOCOL = 87
"""Our mark in rtm_protocol: not among those that the kernel or /etc/iproute2/rt_protos assign."""
METRIC = 65535
DEVICE = "wherry0"
"""The device of the route for the service range."""


def _family(address: str) -> str:
    return "-6" if ":" in address else "-4"


async def install(cluster_cidrs: Sequence[str], service_cidrs: Sequence[str], *, source: str, mtu: int) -> None:
    """Install the routes for the pod and service ranges, and the device of the latter.

    `source` is the node's address that its own connections to cluster IPs carry, or ""; `mtu` is in bytes.
    """
    await _ensure_device(mtu)
    mark = ["proto", str(PROTOCOL), "metric", str(METRIC)]
    for cidr in cluster_cidrs:
        await run(["ip", _family(cidr), "route", "replace", "unreachable", cidr, *mark])
    for cidr in service_cidrs:
        family = _family(cidr)
        named = ["src", source] if source and _family(source) == family else []
        await run(["ip", family, "route", "replace", cidr, "dev", DEVICE, *mark, *named])


async def _ensure_device(mtu: int) -> None:
    if not await link_exists(DEVICE):
        await run(["ip", "link", "add", "name", DEVICE, "mtu", str(mtu), "type", "bridge"])
    await run(["ip", "link", "set", "dev", DEVICE, "mtu", str(mtu), "up"])


async def link_exists(name: str) -> bool:
    """Return whether a network device is there."""
    return (await run(["ip", "link", "show", "dev", name], check=False)).returncode == 0


def installed(cidrs: Sequence[str]) -> bool:
    """Return whether there are routes for the cluster's ranges: small files to read, for regular checks."""
    wanted = {ipaddress.ip_network(cidr, strict=False) for cidr in cidrs}
    held: set[tuple[str, str]] = set()
    try:
        with open("/proc/thread-self/net/route") as file:
            held |= {(fields[1], fields[7]) for fields in map(str.split, file) if len(fields) > 7}
        if any(network.version == 6 for network in wanted):
            with open("/proc/thread-self/net/ipv6_route") as file:
                held |= {(fields[0], fields[1]) for fields in map(str.split, file)}
    except OSError:
        return True
    return all(_kernel_words(network) in held for network in wanted)


def _kernel_words(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> tuple[str, str]:
    """Return destination and mask as those files write them."""
    if isinstance(network, ipaddress.IPv6Network):
        return network.network_address.packed.hex(), f"{network.prefixlen:02x}"
    address, mask = (int.from_bytes(each.packed, sys.byteorder) for each in (network.network_address, network.netmask))
    return f"{address:08X}", f"{mask:08X}"


async def remove_routes() -> None:
    """Remove every route of ours, and the device."""
    for family in ("-4", "-6"):
        await run(["ip", family, "route", "flush", "proto", str(PROTOCOL)], check=False)
    await remove_bridge(DEVICE)


async def uplink_mtu(default: int = 1500) -> int:
    """Return the MTU of the default route's device in bytes, `default` where there is no such route."""
    for route in await show("ip", "-j", "route", "show", "default"):
        links = await show("ip", "-j", "link", "show", "dev", route["dev"]) if "dev" in route else []
        if links:
            return int(links[0].get("mtu", default))
    return default


async def remove_bridge(name: str) -> None:
    """Remove a bridge; no error where there is none."""
    await run(["ip", "link", "del", "dev", name], check=False)
