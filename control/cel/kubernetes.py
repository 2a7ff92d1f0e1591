"""Kubernetes' own types in CEL: quantities, URLs, IP addresses and networks, semantic versions."""

from __future__ import annotations

import ipaddress
import re
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from control.cel.errors import EvaluationError, no_overload
from control.cel.functions import Function, text
from control.cel.values import CIDR, URL, Quantity, Semver
from kube import quantity as quantities
from kube import urls
from kube.group_patterns import fullmatch


# -- quantities -----------------------------------------------------------------------------------------------------
def quantity(a: Any) -> Quantity:
    text(a)
    try:
        return Quantity(Decimal(quantities.parse(a)))
    except quantities.QuantityError as error:
        raise EvaluationError(str(error)) from error
    except ArithmeticError:
        raise EvaluationError(quantities.MESSAGE) from None


def _accepts(make: Function) -> Function:
    def function(*args: Any) -> bool:
        try:
            make(*args)
        except EvaluationError as error:
            if str(error) == "no such overload":
                raise
            return False
        return True

    return function


def _number(a: Any) -> Decimal:
    if type(a) is Quantity:
        return a.number
    raise no_overload()


def _operand(a: Any) -> Decimal:
    return Decimal(a) if type(a) is int else _number(a)


def as_integer(a: Any) -> int:
    number = _number(a)
    if number != number.to_integral_value() or not -(1 << 63) <= number < 1 << 63:
        raise EvaluationError("cannot convert value to integer")
    return int(number)


def _is_integer(a: Any) -> bool:
    number = _number(a)
    return number == number.to_integral_value() and -(1 << 63) <= number < 1 << 63


def _sign(a: Any) -> int:
    number = _number(a)
    return (number > 0) - (number < 0)


def compare(a: Any, b: Any) -> int:
    if type(a) is Semver and type(b) is Semver:
        return (a.order > b.order) - (a.order < b.order)
    one, other = _number(a), _number(b)
    return (one > other) - (one < other)


# -- URLs -----------------------------------------------------------------------------------------------------------
def url(a: Any) -> URL:
    text(a)
    problem = EvaluationError(f'URL parse error during conversion from string: parse "{a}": invalid URI for request')
    if not a or urls.NOT_PRINTED.search(a) or re.search("%(?![0-9A-Fa-f]{2})", a.split("?")[0]):
        raise problem
    try:
        parts = urls.split(a)
        _ = parts.port
    except ValueError:
        raise problem from None
    if not (a.startswith("/") or parts.scheme):
        raise problem
    if a.startswith("//") and not parts.scheme:
        return URL(a, "", "", a.split("?")[0], parts.query)
    return URL(a, parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query)


def _url(a: Any) -> URL:
    if type(a) is not URL:
        raise no_overload()
    return a


def _hostname(a: Any) -> str:
    host = _url(a).host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(a: Any) -> str:
    host = _url(a).host
    rest = host.rpartition("]")[2] if host.startswith("[") else host
    return rest.partition(":")[2]


# -- addresses ------------------------------------------------------------------------------------------------------
IP = ipaddress.IPv4Address | ipaddress.IPv6Address


def ip(a: Any) -> IP:
    if type(a) is CIDR:
        return a.interface.ip
    text(a)
    try:
        found = ipaddress.ip_address(a)
    except ValueError:
        raise EvaluationError(
            f'IP Address "{a}" parse error during conversion from string: unable to parse IP'
        ) from None
    if isinstance(found, ipaddress.IPv6Address) and (found.scope_id or found.ipv4_mapped):
        why = (
            "IP address with zone value is not allowed" if found.scope_id else "IPv4-mapped IPv6 address is not allowed"
        )
        raise EvaluationError(f'IP Address "{a}" parse error during conversion from string: {why}')
    return found


def _ip(a: Any) -> IP:
    if isinstance(a, ipaddress.IPv4Address | ipaddress.IPv6Address):
        return a
    raise no_overload()


def _canonical(a: Any) -> bool:
    return bool(str(ip(a)) == a)


def cidr(a: Any) -> CIDR:
    text(a)
    problem = EvaluationError(f'network address parse error during conversion from string: "{a}"')
    if "/" not in a or not a.rpartition("/")[2].isdigit():
        raise problem
    try:
        found = ipaddress.ip_interface(a)
    except ValueError:
        raise problem from None
    return CIDR(found)


def _cidr(a: Any) -> CIDR:
    if type(a) is CIDR:
        return a
    raise no_overload()


def contains_ip(a: Any, b: Any) -> bool:
    network, address = _cidr(a).interface.network, ip(b) if type(b) is str else _ip(b)
    return bool(address.version == network.version and address in network)


def contains_cidr(a: Any, b: Any) -> bool:
    outer = _cidr(a).interface.network
    inner = (cidr(b) if type(b) is str else _cidr(b)).interface.network
    if outer.version != inner.version:
        return False
    return bool(inner.subnet_of(outer))  # type: ignore[arg-type]


def _masked(a: Any) -> CIDR:
    return CIDR(ipaddress.ip_interface(str(_cidr(a).interface.network)))


# -- versions -------------------------------------------------------------------------------------------------------
_NUMBER = "(0|[1-9][0-9]*)"
_PRE = "(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PRE}(?:\.{_PRE})*))?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)


def semver(a: Any, normalize: Any = False) -> Semver:  # noqa: FBT002 - a function of expressions
    text(a)
    given = a
    if normalize:
        given = a.removeprefix("v")
        core = re.match(r"[0-9.]*", given)
        assert core is not None
        numbers = [part.lstrip("0") or "0" for part in core.group().split(".") if part]
        numbers += ["0"] * (3 - len(numbers))
        given = ".".join(numbers) + given[core.end() :]
    found = fullmatch(_SEMVER, given)
    if found is None:
        raise EvaluationError(f'invalid semantic version "{a}"')
    major, minor, patch, pre = found.groups()
    parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre.split(".")) if pre else ()
    return Semver(int(major), int(minor), int(patch), parts, given)


def _version(part: str) -> Function:
    def function(a: Any) -> int:
        if type(a) is not Semver:
            raise no_overload()
        return int(getattr(a, part))

    return function


FUNCTIONS: dict[str, Function] = {
    "quantity": quantity,
    "isQuantity": _accepts(quantity),
    "sign": _sign,
    "isInteger": _is_integer,
    "asInteger": as_integer,
    "asApproximateFloat": lambda a: float(_number(a)),
    "add": lambda a, b: Quantity(_number(a) + _operand(b)),
    "sub": lambda a, b: Quantity(_number(a) - _operand(b)),
    "isGreaterThan": lambda a, b: compare(a, b) > 0,
    "isLessThan": lambda a, b: compare(a, b) < 0,
    "compareTo": compare,
    "url": url,
    "isURL": _accepts(url),
    "getScheme": lambda a: _url(a).scheme,
    "getHost": lambda a: _url(a).host,
    "getHostname": _hostname,
    "getPort": _port,
    "getEscapedPath": lambda a: quote(unquote(_url(a).path), safe="/:@!$&'()*+,;=~-._"),
    "getQuery": lambda a: parse_qs(_url(a).query, keep_blank_values=True),
    "ip": ip,
    "isIP": _accepts(ip),
    "ip.isCanonical": _canonical,
    "family": lambda a: _ip(a).version,
    "isUnspecified": lambda a: _ip(a).is_unspecified,
    "isLoopback": lambda a: _ip(a).is_loopback,
    "isLinkLocalMulticast": lambda a: _ip(a) in _LINK_LOCAL_MULTICAST[_ip(a).version],
    "isLinkLocalUnicast": lambda a: _ip(a).is_link_local,
    "isGlobalUnicast": lambda a: _is_global(_ip(a)),
    "cidr": cidr,
    "isCIDR": _accepts(cidr),
    "containsIP": contains_ip,
    "containsCIDR": contains_cidr,
    "masked": _masked,
    "prefixLength": lambda a: _cidr(a).interface.network.prefixlen,
    "semver": semver,
    "isSemver": _accepts(semver),
    "major": _version("major"),
    "minor": _version("minor"),
    "patch": _version("patch"),
}
_LINK_LOCAL_MULTICAST: dict[int, Any] = {
    4: ipaddress.ip_network("224.0.0.0/24"),
    6: ipaddress.ip_network("ff02::/16"),
}
_BROADCAST = ipaddress.ip_address("255.255.255.255")


def _is_global(address: IP) -> bool:
    """As Go's IsGlobalUnicast: private addresses count as global ones too."""
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and address != _BROADCAST
