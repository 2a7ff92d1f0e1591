"""Routes for the cluster's pod and service ranges, which keep their packets on the node.

Packets to cluster addresses must not leave the cluster. The pod range as a whole has an unreachable route, besides the more
specific routes to this node's bridge and to other nodes. The route of the service range is to a bridge without ports (which
every kernel has, unlike dummy links): the node can then open a connection to a cluster IP without a default route, DNAT sends
it to an endpoint, and untranslated packets are dropped, also while the rules are missing. Two simpler devices do not work: for
packets to loopback the kernel sends no ICMP errors, and for packets routed back to the pods' bridge it sends redirects instead
of errors; a rejection would look like a timeout. All routes carry a protocol number, by which they are found again.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from collections.abc import Sequence

from netproxy import netlink, rtnetlink_tables
from netproxy import rtnetlink_requests as requests

PROTOCOL = 87
"""Our mark in rtm_protocol: not among those that the kernel or /etc/iproute2/rt_protos assign."""
METRIC = 65535
DEVICE = "wherry0"
"""The device of the route for the service range."""


async def install(cluster_cidrs: Sequence[str], service_cidrs: Sequence[str], *, source: str, mtu: int) -> None:
    """Install the routes for the pod and service ranges, and the device of the latter. OSError if the kernel refuses one.

    `source` is the node's address that its own connections to cluster IPs carry, or ""; `mtu` is in bytes.
    """

    def work(connection: socket.socket) -> None:
        # Others may create the device meanwhile.
        if rtnetlink_tables.link(connection, DEVICE) is None:
            netlink.apply(connection, [requests.add_link(DEVICE, "bridge", mtu)], (errno.EEXIST,))
        device = rtnetlink_tables.link(connection, DEVICE)
        if device is None:
            raise OSError(errno.ENODEV, f"the device {DEVICE} was deleted by others")
        changes = [requests.set_up(device.number, mtu)]
        changes += [requests.replace_unreachable(_network(cidr), PROTOCOL, METRIC) for cidr in cluster_cidrs]
        for cidr in service_cidrs:
            named = source if (":" in source) == (":" in cidr) else ""
            changes.append(requests.replace_route(_network(cidr), device.number, PROTOCOL, source=named, metric=METRIC))
        netlink.apply(connection, changes)

    await netlink.in_thread(work)


def _network(cidr: str) -> str:
    return str(ipaddress.ip_network(cidr, strict=False))


def installed(cidrs: Sequence[str]) -> bool:
    """Return whether there are routes for the cluster's ranges: small files to read, for regular checks."""
    wanted = {ipaddress.ip_network(cidr, strict=False) for cidr in cidrs}
    present: set[tuple[str, str]] = set()
    try:
        with open("/proc/thread-self/net/route") as file:
            present |= {(fields[1], fields[7]) for fields in map(str.split, file) if len(fields) > 7}
        if any(network.version == 6 for network in wanted):
            with open("/proc/thread-self/net/ipv6_route") as file:
                present |= {(fields[0], fields[1]) for fields in map(str.split, file)}
    except OSError:
        return True
    return all(_kernel_words(network) in present for network in wanted)


def _kernel_words(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> tuple[str, str]:
    """Return destination and mask as those files write them."""
    if isinstance(network, ipaddress.IPv6Network):
        return network.network_address.packed.hex(), f"{network.prefixlen:02x}"
    address, mask = (int.from_bytes(each.packed, sys.byteorder) for each in (network.network_address, network.netmask))
    return f"{address:08X}", f"{mask:08X}"


async def remove_routes() -> None:
    """Remove every route of ours, and the device."""

    def work(connection: socket.socket) -> None:
        for family in (4, 6):
            present = rtnetlink_tables.routes(connection, family, PROTOCOL)
            changes = [
                netlink.request(requests.DELETE_ROUTE, netlink.REQUEST | netlink.ACK, body) for _, body in present
            ]
            netlink.apply(connection, changes, (errno.ESRCH,))

    await netlink.in_thread(work)
    await remove_link(DEVICE)


async def uplink_mtu(default: int = 1500) -> int:
    """Return the MTU of the default route's device in bytes, `default` if there is no such route."""

    def work(connection: socket.socket) -> int:
        for route, _ in rtnetlink_tables.routes(connection, 4, 0):
            if route.cidr == "0.0.0.0/0" and (device := rtnetlink_tables.link(connection, route.device)):
                return device.mtu
        return default

    return await netlink.in_thread(work)


async def remove_link(name: str) -> None:
    """Remove a device; no error if there is none."""
    index = netlink.interface_index(name)
    if index:
        await netlink.in_thread(
            lambda connection: netlink.apply(connection, [requests.delete_link(index)], (errno.ENODEV,))
        )
