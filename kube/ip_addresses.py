"""IP addresses as they are reached: an IPv4 address inside an IPv6 one (::ffff:127.0.0.1) is the IPv4 address.

The kernel connects to the IPv4 address, and Go's net.IP, by which upstream judges, knows no difference. Python's
ipaddress judges the IPv6 address, which is neither loopback nor link-local.

Stored objects may contain addresses that new ones may not: with leading zeros, which upstream ignores, although
most C libraries read such a number as octal. `lenient` and `lenient_cidr` read them (ParseIPSloppy, ParseCIDRSloppy).
"""

from __future__ import annotations

import ipaddress
import re
from typing import TypeAlias

import msgspec

from kube.bounded_cache import bounded_cache

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_LEADING_ZEROS = re.compile(r"(?<![0-9a-fA-F])0+(?=[0-9a-fA-F])")
_LENGTH = re.compile(r"[0-9]+")
_MAPPED_BITS = 96
_LONGEST = 64
"""Characters of an address, leading zeros included; without them it has 45 at most."""


def reached(text: str) -> Address:
    """Return the address that a connection to this one leads to; raises ValueError for what is no IP address."""
    if len(text) > _LONGEST:
        raise ValueError("too long for an address")
    if "%" in text:  # the name of a link, which may hold anything and means something on one machine only
        raise ValueError(f"{text!r} names a link")
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


@bounded_cache(4096)
def lenient(text: str) -> Address:
    """Return an address as `reached` does; leading zeros have no meaning."""
    return reached(_LEADING_ZEROS.sub("", text) if len(text) <= _LONGEST else text)


def family(text: str) -> str:
    """Return IPv4 or IPv6 for a stored address, "" for what is none."""
    try:
        return f"IPv{lenient(text).version}"
    except ValueError:
        return ""


@bounded_cache(16384)
def canonical(text: str) -> str:
    """Return the canonical form of a stored address, or the text as it is if it is none."""
    try:
        return str(lenient(text))
    except ValueError:
        return text


class Cidr(msgspec.Struct, frozen=True):
    """A CIDR as it is written."""

    address: Address
    network: Network
    length: int
    """The length of the prefix; of an IPv4 address inside an IPv6 one that of the IPv6 range."""
    bits: int
    """The largest length that the prefix could have."""


def lenient_cidr(text: str) -> Cidr:
    """Return a CIDR whose address is read as `lenient` does; raises ValueError for what is none."""
    written, slash, length = text.partition("/")
    address = lenient(written)
    bits = 128 if ":" in written else 32
    digits = length.lstrip("0") or "0"
    if not slash or not _LENGTH.fullmatch(length) or len(digits) > 3 or int(digits) > bits:
        raise ValueError("no length of a prefix")
    prefix = int(digits)
    if bits == 128 and address.version == 4:
        if prefix < _MAPPED_BITS:
            inside = ipaddress.IPv6Address((0xFFFF << 32) | int(address))
            return Cidr(address, ipaddress.ip_network((inside, prefix), strict=False), prefix, bits)
        return Cidr(address, ipaddress.ip_network((address, prefix - _MAPPED_BITS), strict=False), prefix, bits)
    return Cidr(address, ipaddress.ip_network((address, prefix), strict=False), prefix, bits)


@bounded_cache(1024)
def network(text: str) -> Network:
    """Return the range that a stored CIDR or address names, bits behind the prefix cleared; raises ValueError for none."""
    return lenient_cidr(text).network if "/" in text else ipaddress.ip_network(lenient(text))
