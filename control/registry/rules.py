"""Rules of single fields, for the rows of rows.py: functions of a value and its path that return field errors.

Every check of checks.py with these two arguments is a rule, too. Values are None where the field is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from control.registry.checks import NEGATIVE, Errors, each
from kube.errors import FieldError, forbidden_field, invalid_value, not_supported, required, too_long, too_many
from kube.names import Check

Rule = Callable[[Any, str], Iterable[FieldError]]


class Test(msgspec.Struct, frozen=True):
    """A rule that is only called if an expression of `{value}` and `{limit}` is true, which costs less than a call."""

    wrong: str
    limit: Any
    errors: Rule

    def __call__(self, value: Any, path: str) -> Errors:
        raise TypeError("only for rows")


def unique_item(value: Any, path: str) -> Errors:
    """Mark a list's items, or a field of them, as having each value once."""
    raise TypeError("only for rows")


def require(detail: str = "") -> Test:
    """Reject what is absent or empty."""
    return Test("not {value}", None, lambda value, path: [required(path, detail)])


def present(detail: str = "") -> Test:
    """Reject what is absent; it may be empty."""
    return Test("{value} is None", None, lambda value, path: [required(path, detail)])


def require_enum(*allowed: str, detail: str = "") -> Test:
    """Require one of these values; `detail` is for an absent or empty one."""

    def errors(value: str | None, path: str) -> Errors:
        return [not_supported(path, value, allowed) if value else required(path, detail)]

    return Test("{value} not in {limit}", allowed, errors)


def enum(*allowed: str) -> Test:
    """Reject other values; an absent one is unsupported, as the empty text is."""
    return Test("{value} not in {limit}", allowed, lambda value, path: [not_supported(path, value or "", allowed)])


def minimum(low: int, detail: str) -> Test:
    wrong = "{value} is not None and {value} < {limit}"
    return Test(wrong, low, lambda value, path: [invalid_value(path, value, detail)])


not_negative = minimum(0, NEGATIVE)


def positive(detail: str) -> Test:
    """Reject 0 and less; an absent number is 0."""
    return Test("({value} or 0) <= 0", None, lambda value, path: [invalid_value(path, value or 0, detail)])


def maximum(high: int, detail: str) -> Test:
    wrong = "{value} is not None and {value} > {limit}"
    return Test(wrong, high, lambda value, path: [invalid_value(path, value, detail)])


def between(low: int, high: int, detail: str = "") -> Test:
    wrong = "{value} is not None and not {limit}[0] <= {value} <= {limit}[1]"
    detail = detail or f"must be between {low} and {high}, inclusive"
    return Test(wrong, (low, high), lambda value, path: [invalid_value(path, value, detail)])


def forbid(detail: str) -> Test:
    """Reject what is present."""
    return Test("{value} is not None", None, lambda value, path: [forbidden_field(path, detail)])


def require_name(kind: Check, detail: str = "") -> Test:
    """Require a name of a kind of kube/names.py."""

    def errors(value: str | None, path: str) -> Errors:
        return each(path, value, kind(value)) if value else [required(path, detail)]

    return Test("not {value} or {limit}({value})", kind, errors)


def form(kind: Check) -> Test:
    """Reject texts that have not the form of a kind of kube/names.py; an absent one is empty."""
    return Test("{limit}({value} or '')", kind, lambda value, path: each(path, value or "", kind(value or "")))


def max_bytes(most: int) -> Test:
    """Reject texts that are longer in UTF-8."""
    return Test("{value} and len({value}.encode()) > {limit}", most, lambda value, path: [too_long(path, most)])


def max_characters(most: int, detail: str) -> Test:
    wrong = "{value} and len({value}) > {limit}"
    return Test(wrong, most, lambda value, path: [invalid_value(path, value, detail)])


def max_items(most: int) -> Test:
    wrong = "{value} and len({value}) > {limit}"
    return Test(wrong, most, lambda value, path: [too_many(path, len(value), most)])


def max_map_bytes(most: int) -> Callable[[Any, str], Errors]:
    """Reject maps whose keys and values together are longer in UTF-8."""

    def rule(value: dict[str, str] | None, path: str) -> Errors:
        size = sum(len(key.encode()) + len(text.encode()) for key, text in (value or {}).items())
        return [too_long(path, most)] if size > most else []

    return rule


def text(rule: Rule) -> Rule:
    """Apply a rule for texts to a field, whose absence is the empty text."""
    return lambda value, path: rule(value or "", path)


def number(rule: Rule) -> Rule:
    """Apply a rule for numbers to a field, whose absence is 0."""
    return lambda value, path: rule(value or 0, path)


def only_wildcard(words: str) -> Test:
    """Reject other values in a list that contains `*`."""
    detail = f"if '*' is present, must not specify other {words}"
    wrong = "{value} and '*' in {value} and len({value}) > 1"
    return Test(wrong, None, lambda value, path: [invalid_value(path, value, detail)])


def if_present(key: str, rule: Rule) -> Test:
    """Apply a rule about several fields of a part only if it has this one."""
    return Test(f"{{value}}.get({key!r}) is not None", None, rule)


def optional(rule: Rule) -> Test:
    """Apply a rule to values that are neither absent nor empty."""
    if isinstance(rule, Test):
        return Test(f"{{value}} and ({rule.wrong})", rule.limit, rule.errors)
    return Test("{value}", None, rule)
