"""Checks of IP addresses and CIDRs in fields of all kinds, and warnings about their forms (KEP-4858).

New values have one meaning for all software: no leading zeros, which some read as octal, no IPv4 address inside an IPv6
one, no bits behind the prefix of a CIDR. Older fields accept other forms than the canonical one, with a warning; an update
may keep what is stored, as far as the field's kind says (`kept`). Newer fields are strict.
Upstream: apimachinery's util/validation/ip.go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterator, Sequence

from control.registry.checks import Errors, each
from control.registry.field_values import field_values
from kube.bounded_cache import bounded_cache
from kube.errors import FieldError, invalid_value
from kube.ip_addresses import Address, Cidr, lenient, lenient_cidr
from kube.json_object import Object

NOT_AN_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NOT_A_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_ZEROS = "must not have leading 0s"
_ENTRIES = 16384
"""Texts whose verdict is cached: slices of a thousand endpoints are updated often."""


def ip(value: str, path: str, kept: Collection[str] = ()) -> Errors:
    """Check an address in an older field; `kept` are the values that an update may keep."""
    problem = "" if value in kept else _read(value)[0]
    return [invalid_value(path, value, problem)] if problem else []


def strict_ip(value: str, path: str) -> Errors:
    """Check an address in a field that accepts only the canonical form."""
    problem, canonical = _read(value)
    if not problem and canonical != value:
        problem = f'must be in canonical form ("{canonical}")'
    return [invalid_value(path, value, problem)] if problem else []


def cidr(value: str, path: str, kept: Collection[str] = ()) -> Errors:
    """Check a range of addresses in an older field; `kept` are the values that an update may keep."""
    problem = "" if value in kept else _cidr_problem(value)
    return [invalid_value(path, value, problem)] if problem else []


def strict_cidr(value: str, path: str) -> Errors:
    """Check a range in a field that accepts only the canonical form."""
    problem = _cidr_problem(value)
    if not problem and (canonical := str(lenient_cidr(value).network)) != value:
        problem = f'must be in canonical form ("{canonical}")'
    return [invalid_value(path, value, problem)] if problem else []


def interface_address(value: str, path: str) -> Errors:
    """Check the address of an interface with the length of its prefix, in the canonical form."""
    try:
        found = lenient_cidr(value)
    except ValueError:
        detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [invalid_value(path, value, detail)]
    inside = found.bits == 128 and found.address.version == 4 and found.length > 32
    canonical = f"{found.address}/{found.length - 96 if inside else found.length}"
    return [] if canonical == value else [invalid_value(path, value, f'must be in canonical form ("{canonical}")')]


@bounded_cache(_ENTRIES)
def _read(value: str) -> tuple[str, str]:
    """Return the problem with a new address, or "", and its canonical form, or "" if it is no address."""
    try:
        canonical = str(lenient(value))
    except ValueError:
        return NOT_AN_IP, ""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return _ZEROS, canonical
    mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    return "must not be an IPv4-mapped IPv6 address" if mapped else "", canonical


@bounded_cache(_ENTRIES)
def _cidr_problem(value: str) -> str:
    try:
        found = lenient_cidr(value)
    except ValueError:
        return NOT_A_CIDR
    if not _plain(value, found):
        return "must not have leading 0s in IP or prefix length"
    if found.bits == 128 and found.address.version == 4:
        return "must not have an IPv4-mapped IPv6 address"
    return "" if found.address == found.network.network_address else "must not have bits set beyond the prefix length"


def _plain(value: str, found: Cidr) -> bool:
    """Return whether a CIDR has no leading zeros."""
    text, _, length = value.partition("/")
    return _read(text)[0] != _ZEROS and length == str(found.length)


def non_special_ip(value: str, path: str) -> Errors:
    """Reject loopback, link-local and similar addresses, which reach services of a node or its link (CVE-2021-25737)."""
    return each(path, value, _special(value))


@bounded_cache(_ENTRIES)
def _special(value: str) -> tuple[str, ...]:
    try:
        address = lenient(value)
    except ValueError:
        return ("must be a valid IP address",)
    found = []
    if address.is_unspecified:
        found.append(f"may not be unspecified ({value})")
    if address.is_loopback:
        found.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        found.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if _is_link_local_multicast(address):
        found.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return tuple(found)


def _is_link_local_multicast(address: Address) -> bool:
    """Judge as Go: of an IPv6 address the scope counts, whatever the flags are."""
    packed = address.packed
    if address.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0xF == 2


def one_ip_a_family(values: Sequence[str], path: str, shown: object) -> Errors:
    """Check that two addresses are one of each family, and that there are no more."""
    unreadable = "failed to check for dual stack with error:invalid IP[{}]: {}"
    detail = "may specify no more than one IP for each IP family"
    return _one_a_family(values, path, shown, lambda text: lenient(text).version, detail, unreadable)


def one_cidr_a_family(values: Sequence[str], path: str) -> Errors:
    """Check that two ranges are one of each family, and that there are no more."""
    unreadable = "invalid PodCIDRs. failed to check with dual stack with error:"
    unreadable += "invalid CIDR[{}]: <nil> (invalid CIDR address: {})"
    detail = "may specify no more than one CIDR for each IP family"
    return _one_a_family(values, path, values, lambda text: lenient_cidr(text).network.version, detail, unreadable)


def _one_a_family(
    values: Sequence[str], path: str, shown: object, version: Callable[[str], int], detail: str, unreadable: str
) -> Errors:
    if len(values) < 2:
        return []
    errors, found = Errors(), list[int]()
    for index, value in enumerate(values):
        try:
            found.append(version(value))
        except ValueError:
            errors.append(FieldError(path, "Internal error", unreadable.format(index, value)))
            break
    if errors or sorted(found) != [4, 6]:
        errors.append(invalid_value(path, shown, detail))
    return errors


def ip_warnings(obj: Object, *paths: str, at: str = "") -> Iterator[str]:
    """Warn of addresses in fields that are not in the canonical form; not of what is no address."""
    for path in paths:
        for place, value in field_values(obj, path, at):
            yield from ip_warning(value, place)


def ip_warning(value: str, path: str) -> Iterator[str]:
    problem, canonical = _read(value)
    if problem and canonical:
        yield f'{path}: non-standard IP address "{value}" is invalid: use "{canonical}"'
    elif canonical and canonical != value:
        yield f'{path}: IPv6 address "{value}" should be in RFC 5952 canonical format ("{canonical}")'


def cidr_warnings(obj: Object, *paths: str, at: str = "") -> Iterator[str]:
    """Warn of ranges in fields that are not in the canonical form; not of what is no range."""
    for path in paths:
        for place, value in field_values(obj, path, at):
            yield from _cidr_warnings(value, place)


def _cidr_warnings(value: str, path: str) -> Iterator[str]:
    try:
        found = lenient_cidr(value)
    except ValueError:
        return
    ambiguous = found.address != found.network.network_address
    if ambiguous:
        meant = f'"{found.network}" or "{found.address}/{found.bits}"'
        yield f'{path}: CIDR value "{value}" is ambiguous in this context (should be {meant}?)'
    mapped = found.bits == 128 and found.address.version == 4
    if mapped or not _plain(value, found):
        yield f'{path}: non-standard CIDR value "{value}" is invalid: use "{found.network}"'
    elif not ambiguous and found.bits == 128 and str(found.network) != value:
        yield f'{path}: IPv6 CIDR value "{value}" should be in RFC 5952 canonical format ("{found.network}")'
