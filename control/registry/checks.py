"""Checks that the fields of many kinds share, each returning a list of field errors in upstream's words.

The rules are those of apimachinery's api/validation and of pkg/apis/core/validation.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from control.patch.json_patch import identity
from control.registry.columns import Object
from kube import names
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value, not_supported, required
from kube.ip_addresses import reached
from kube.quantity import Quantity, QuantityError, parse
from kube.remembering import remembered

Errors = list[FieldError]
NEGATIVE = "must be greater than or equal to 0"
NOT_AN_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NOT_A_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
MAX_INT32 = 2**31 - 1


def non_negative(value: int | None, path: str) -> Errors:
    return [invalid_value(path, value, NEGATIVE)] if value is not None and value < 0 else []


def one_of(value: str | None, allowed: Iterable[str], path: str, needed: bool = True) -> Errors:
    """Check an enum; an absent one is an error only where it is needed."""
    if not value:
        return [required(path)] if needed else []
    return [] if value in (allowed := tuple(allowed)) else [not_supported(path, value, allowed)]


def in_range(value: int | None, low: int, high: int, path: str) -> Errors:
    if value is None or low <= value <= high:
        return []
    return [invalid_value(path, value, f"must be between {low} and {high}, inclusive")]


def each(path: str, value: Any, problems: Iterable[str]) -> Errors:
    """Make one Invalid value of every message."""
    return [invalid_value(path, value, problem) for problem in problems]


def required_name(path: str, value: str | None, rule: Callable[[str], list[str]], detail: str = "") -> Errors:
    """Check a name, which may be neither absent nor empty, by a rule of kube/names.py."""
    if not value:
        return [required(path, detail)]
    return [invalid_value(path, value, problem) for problem in rule(value)]


def unique(path: str, value: Any, seen: set[Any]) -> Errors:
    """Check that a value is none of those seen before, and add it to them."""
    if value in seen:
        return [duplicate(path, value)]
    seen.add(value)
    return []


def non_negative_fields(obj: Object, path: str, *keys: str) -> Errors:
    """Check numbers that may not be negative."""
    errors: Errors = []
    for key in keys:
        errors += non_negative(obj.get(key), f"{path}.{key}")
    return errors


def port(value: Any, path: str) -> Errors:
    return each(path, value, names.port_number(value))


def port_or_name(value: Any, path: str) -> Errors:
    if isinstance(value, str):
        return each(path, value, names.port_name(value))
    return port(value or 0, path)


def ip(value: str, path: str) -> Errors:
    try:
        if "%" in value:  # a link's name behind an address means something on one machine only
            raise ValueError
        ipaddress.ip_address(value)
    except ValueError:
        return [invalid_value(path, value, NOT_AN_IP)]
    return []


def cidr(value: str, path: str) -> Errors:
    """Check a range of addresses; bits behind the prefix may be set."""
    try:
        if "/" not in value or "%" in value:
            raise ValueError
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return [invalid_value(path, value, NOT_A_CIDR)]
    return []


def one_a_family(ranges: Iterable[str]) -> bool:
    """True if there is no more than one address or range of each IP family."""
    families = [":" in text for text in ranges]
    return len(families) == len(set(families))


def non_special_ip(value: str, path: str) -> Errors:
    """Refuse addresses that would lead back to a node's own or a link's services (CVE-2021-25737)."""
    return each(path, value, _special(value))


@remembered(16384)
def _special(value: str) -> tuple[str, ...]:
    """Return what is special about an address; slices of a thousand endpoints come again and again."""
    try:
        address = reached(value)
    except ValueError:
        return ("must be a valid IP address",)
    found = []
    if address.is_unspecified:
        found.append(f"may not be unspecified ({value})")
    if address.is_loopback:
        found.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        found.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if address in _LINK_LOCAL_MULTICAST[address.version]:
        found.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return tuple(found)


_LINK_LOCAL_MULTICAST = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}


def no_backsteps(value: str, path: str) -> Errors:
    """Refuse a path in a file system with a `..` step."""
    return [invalid_value(path, value, "must not contain '..'")] if ".." in value.split("/") else []


def domain_prefixed(value: str, path: str) -> Errors:
    """Check a name of the form example.com/what."""
    if not value:
        return [required(path)]
    domain, slash, rest = value.partition("/")
    if not slash or not domain or not rest:
        return [invalid_value(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = each(path, domain, names.dns1123_subdomain(domain))
    if not _PATH.fullmatch(rest):
        detail = f"Invalid path (regex used for validation is '{_PATH.pattern}')"
        errors.append(invalid_value(path, rest, detail))
    return errors


_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def labels(found: Mapping[str, str] | None, path: str) -> Errors:
    errors = []
    for key, value in (found or {}).items():
        errors += each(path, key, names.qualified_name(key))
        errors += each(path, value, names.label_value(value))
    return errors


def annotation_keys(found: Mapping[str, str] | None, path: str) -> Errors:
    errors: Errors = []
    for key in found or {}:
        errors += each(path, key, names.qualified_name(key.lower()))
    return errors


def label_selector(selector: Object | None, path: str, check_values: bool = True) -> Errors:
    """Check a LabelSelector (metav1 validation); the values of its expressions only where `check_values`."""
    if selector is None:
        return []
    errors = labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator") or "", expression.get("values")
        if operator in ("In", "NotIn"):
            if not values:
                errors.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(forbidden_field(f"{where}.values", detail))
        else:
            errors.append(invalid_value(f"{where}.operator", operator, "not a valid selector operator"))
        key = expression.get("key") or ""
        errors += each(f"{where}.key", key, names.qualified_name(key))
        for number, value in enumerate(values or () if check_values else ()):
            errors += each(f"{where}.values[{number}]", value, names.label_value(value))
    return errors


def selects(selector: Object | None, found: Mapping[str, str]) -> bool:
    """True if a LabelSelector chooses an object with these labels; none at all chooses nothing."""
    if selector is None:
        return False
    if any(found.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        value, operator = found.get(expression.get("key", "")), expression.get("operator")
        listed = value is not None and value in (expression.get("values") or ())
        holds = {"In": listed, "NotIn": not listed, "Exists": value is not None, "DoesNotExist": value is None}
        if not holds.get(operator or "", False):
            return False
    return True


def is_empty(selector: Object | None) -> bool:
    return selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions")


def quantity(value: Quantity, path: str) -> Errors:
    """Check a quantity that may not be negative; what is none at all is refused with the parser's words."""
    try:
        number = parse(value)
    except QuantityError as error:
        return [invalid_value(path, value, str(error))]
    return [invalid_value(path, str(value), NEGATIVE)] if number < 0 else []


_PERCENT = re.compile("[0-9]+%")


def int_or_percent(value: Any, path: str) -> Errors:
    """Check a whole number or a percentage, neither below 0."""
    if isinstance(value, str):
        if _PERCENT.fullmatch(value):
            return []
        detail = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used "
            "for validation is '[0-9]+%')"
        )
        return [invalid_value(path, value, detail)]
    return non_negative(value, path)


def at_most_all(value: Any, path: str) -> Errors:
    """Check that a percentage is no more than 100%."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and _beyond_all(value[:-1].lstrip("0")):
        return [invalid_value(path, value, "must not be greater than 100%")]
    return []


def _beyond_all(digits: str) -> bool:
    return len(digits) > 3 or int(digits or "0") > 100


def scaled_zero(value: Any) -> bool:
    """True if a number or percentage is none."""
    return value in (None, 0) or (isinstance(value, str) and bool(re.fullmatch("0+%", value)))


def repeated(values: Sequence[Any]) -> set[int]:
    """Return the places of those JSON values that stand before in the list, too."""
    seen, found = set[Any](), set[int]()
    for index, value in enumerate(values):
        key = identity(value)
        if key in seen:
            found.add(index)
        seen.add(key)
    return found
