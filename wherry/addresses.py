"""Selects the address of a machine that others can reach.

The default route's is the usual answer. It is wrong in a virtual machine behind VirtualBox's or QEMU's own address translation,
where every machine has the very same one, and there is none where a closed network has no way out. Then an address of
another real link is taken: one with a device behind it, so that bridges, tunnels and pods' links are left out.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Collection
from pathlib import Path

from netproxy import netlink, rtnetlink_tables

BEHIND_TRANSLATION = ipaddress.ip_network("10.0.2.0/24")


def own_address() -> str:
    """Return this machine's IPv4 address, or "" where it has none that others could use."""
    return choose(default_route(), devices())


def choose(towards_default: str, on_devices: list[str]) -> str:
    """Prefer the default route's address unless every virtual machine has it; then the first of another device."""
    shared = bool(towards_default) and ipaddress.ip_address(towards_default) in BEHIND_TRANSLATION
    if towards_default and not shared:
        return towards_default
    usable = [a for a in on_devices if ipaddress.ip_address(a) not in BEHIND_TRANSLATION]
    return next(iter(usable or on_devices), towards_default)


def default_route() -> str:
    """Return the address that this machine uses towards its default route, or "" where it has none."""
    # Connecting a datagram socket sends nothing; it only asks the kernel for a route.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.254", 9))
        except OSError:
            return ""
        address: str = probe.getsockname()[0]
        return address


def devices() -> list[str]:
    """Return the first address of each link that has a device, in the kernel's order; nothing if they cannot be listed."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError), netlink.connect(netlink.ROUTE, strict=True) as connection:
        for each in rtnetlink_tables.addresses(connection):
            address = ipaddress.ip_address(each.address)
            name = socket.if_indextoname(each.device)
            usable = address.version == 4 and not address.is_loopback and not address.is_link_local
            if usable and name not in found and Path("/sys/class/net", name, "device").exists():
                found[name] = each.address
    return list(found.values())


def absent(wanted: Collection[str]) -> list[str]:
    """Return the addresses that no interface of this machine has; nothing if the kernel cannot be asked."""
    with contextlib.suppress(OSError), netlink.connect(netlink.ROUTE, strict=True) as connection:
        present = rtnetlink_tables.devices_of(connection, wanted)
        return [address for address in wanted if str(ipaddress.ip_address(address)) not in present]
    return []
