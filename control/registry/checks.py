"""Checks of fields that many kinds share. Each returns a list of field errors with upstream's messages.

The rules are those of apimachinery's api/validation and of pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from control.patch.json_patch import identity
from kube import names
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value, not_supported, required, too_many
from kube.json_object import Object
from kube.quantity import Quantity, QuantityError, canonical, parse

Errors = list[FieldError]
FieldErrors = Iterator[FieldError]
"""Errors of a check that yields them."""
NEGATIVE = "must be greater than or equal to 0"
MAX_INT32 = 2**31 - 1


def non_negative(value: int | None, path: str) -> Errors:
    return [invalid_value(path, value, NEGATIVE)] if value is not None and value < 0 else []


def one_of(value: str | None, allowed: Iterable[str], path: str, *, needed: bool = True) -> Errors:
    """Check an enum; an absent value is an error only if it is required."""
    if not value:
        return [required(path)] if needed else []
    return [] if value in (allowed := tuple(allowed)) else [not_supported(path, value, allowed)]


def enum(value: str, allowed: Iterable[str], path: str) -> Errors:
    """Check an enum that is set; an empty text is one more unsupported value."""
    return [] if value in (allowed := tuple(allowed)) else [not_supported(path, value, allowed)]


def in_range(value: int | None, low: int, high: int, path: str) -> Errors:
    if value is None or low <= value <= high:
        return []
    return [invalid_value(path, value, f"must be between {low} and {high}, inclusive")]


def each(path: str, value: Any, problems: Collection[str]) -> Errors:
    """Return an Invalid value error for every message."""
    return [invalid_value(path, value, problem) for problem in problems] if problems else []


def required_name(path: str, value: str | None, rule: Callable[[str], list[str]], detail: str = "") -> Errors:
    """Check a name, which may be neither absent nor empty, by a rule of kube/names.py."""
    if not value:
        return [required(path, detail)]
    return [invalid_value(path, value, problem) for problem in rule(value)]


def unique(path: str, value: Any, seen: set[Any]) -> Errors:
    """Check that a value is not a duplicate, and add it to the seen ones."""
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


def no_backsteps(value: str, path: str) -> Errors:
    """Reject a file system path with a `..` step."""
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
        errors.append(invalid_value(path, rest, f"Invalid path (regex used for validation is '{_PATH.pattern}')"))
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


def label_selector(selector: Object | None, path: str, *, check_values: bool = True) -> Errors:
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
    """Return whether a LabelSelector matches these labels; None matches nothing."""
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
    """Check a quantity that may not be negative; an invalid one gets the parser's message."""
    try:
        number = parse(value)
    except QuantityError as error:
        return [invalid_value(path, value, str(error))]
    return [invalid_value(path, canonical(value), NEGATIVE)] if number < 0 else []


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
    """Return whether a number or percentage is zero."""
    return value in (None, 0) or (isinstance(value, str) and bool(re.fullmatch("0+%", value)))


def repeated(values: Sequence[Any]) -> set[int]:
    """Return the indexes of JSON values that are duplicates of earlier ones in the list."""
    seen, found = set[Any](), set[int]()
    for index, value in enumerate(values):
        key = identity(value)
        if key in seen:
            found.add(index)
        seen.add(key)
    return found


def at_most(most: int, items: list[Any], path: str, check: Callable[[Any, str], Errors] | None = None) -> Errors:
    """Check each item, or, without reading them, that there are not too many."""
    if len(items) > most:
        return [too_many(path, len(items), most)]
    return [error for index, item in enumerate(items) for error in check(item, f"{path}[{index}]")] if check else []
