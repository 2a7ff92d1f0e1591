"""IP addresses as they are reached: an IPv4 address inside an IPv6 one (::ffff:127.0.0.1) is the IPv4 address.

The kernel connects to the IPv4 address, and Go's net.IP, by which upstream judges, knows no difference. Python's
ipaddress judges the IPv6 address, which is neither loopback nor link-local.
"""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def reached(text: str) -> Address:
    """Return the address that a connection to this one leads to; raises ValueError for what is no IP address."""
    if "%" in text:  # the name of a link, which may hold anything and means something on one machine only
        raise ValueError(f"{text!r} names a link")
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def network(text: str) -> Network:
    """Return the range that a CIDR names, bits behind the prefix cleared; raises ValueError for what is none."""
    if "%" in text:
        raise ValueError(f"{text!r} names a link")
    return ipaddress.ip_network(text, strict=False)
