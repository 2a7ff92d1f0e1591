"""The extension libraries that Kubernetes adds to CEL: strings, lists, sets, regular expressions, named formats.

Quantities, URLs, addresses and versions are in `control.cel.kubernetes`.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from control.cel import formats
from control.cel.charges import searched
from control.cel.conversions import plain_double, to_string
from control.cel.errors import EvaluationError, no_overload
from control.cel.frame import Frame
from control.cel.functions import Function, less, pattern, text
from control.cel.functions import add as plus
from control.cel.patterns import search_cost
from control.cel.values import NONE, Duration, Format, Optional, Uint, equal_item, kind_of
from kube import names


def _whole(value: Any) -> None:
    if type(value) is not int:
        raise no_overload()


# -- strings --------------------------------------------------------------------------------------------------------
def char_at(a: Any, at: Any) -> str:
    text(a)
    _whole(at)
    if not 0 <= at <= len(a):
        raise EvaluationError(f"index out of range: {at}")
    return str(a[at : at + 1])


def index_of(frame: Frame, a: Any, b: Any, start: Any = 0) -> int:
    if type(a) is list:
        return next((i for i, item in enumerate(a) if equal_item(frame, item, b)), -1)
    text(a, b)
    _whole(start)
    if not 0 <= start <= len(a):
        raise EvaluationError(f"index out of range: {start}")
    return int(a.find(b, start))


def last_index_of(frame: Frame, a: Any, b: Any, start: Any = None) -> int:
    if type(a) is list:
        return next((i for i in range(len(a) - 1, -1, -1) if equal_item(frame, a[i], b)), -1)
    text(a, b)
    if start is not None:
        _whole(start)
        if not 0 <= start <= len(a):
            raise EvaluationError(f"index out of range: {start}")
        a = a[: start + len(b)]
    if len(b) > len(a):
        return -1
    at = a[::-1].find(b[::-1])  # linear; str.rfind is quadratic
    return -1 if at < 0 else len(a) - at - len(b)


def joined(a: Any, separator: Any = "") -> str:
    if type(a) is not list:
        raise no_overload()
    text(separator, *a)
    return str(separator).join(a)


_LOWER = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}
_UPPER = {c + 32: c for c in range(ord("A"), ord("Z") + 1)}


def lower_ascii(a: Any) -> str:
    text(a)
    return str(a.translate(_LOWER))


def upper_ascii(a: Any) -> str:
    text(a)
    return str(a.translate(_UPPER))


def replace(a: Any, old: Any, new: Any, count: Any = -1) -> str:
    text(a, old, new)
    _whole(count)
    return str(a.replace(old, new, count))


def split(a: Any, separator: Any, count: Any = -1) -> list[str]:
    text(a, separator)
    _whole(count)
    if count == 0:
        return []
    if count == 1:
        return [a]
    if not separator:
        parts = list(a)
        return parts if count < 0 or len(parts) <= count else [*parts[: count - 1], "".join(parts[count - 1 :])]
    return list(a.split(separator, count - 1 if count > 0 else -1))


def substring(a: Any, start: Any, end: Any = None) -> str:
    text(a)
    _whole(start)
    end = len(a) if end is None else end
    _whole(end)
    if not 0 <= start <= len(a):
        raise EvaluationError(f"index out of range: {start}")
    if not 0 <= end <= len(a):
        raise EvaluationError(f"index out of range: {end}")
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return str(a[start:end])


def trim(a: Any) -> str:
    text(a)
    return str(a.strip())


def reverse(a: Any) -> Any:
    text(a)
    return a[::-1]


def quote(a: Any) -> str:
    text(a)
    plain = json.dumps(a, ensure_ascii=False)
    return plain.replace("\\u0007", "\\a").replace("\\u000b", "\\v")


MOST_DIGITS = 1000
_VERB = re.compile(r"%(?:\.([0-9]+))?([a-zA-Z%])")


def format_(frame: Frame, a: Any, values: Any) -> str:
    """printf of CEL's strings library: %s %d %f %e %b %x %X %o, with a precision for %f and %e."""
    text(a)
    if type(values) is not list:
        raise no_overload()
    left = iter(values)

    def one(found: re.Match[str]) -> str:
        precision, verb = found.groups()
        if verb == "%":
            return "%"
        try:
            value = next(left)
        except StopIteration:
            raise EvaluationError(f"index {len(values)} out of range") from None
        shown = _clause(verb, value, int(precision) if precision else 6, frame)
        frame.spend(len(shown) // 10)
        return shown

    return _VERB.sub(one, a)


def _clause(verb: str, value: Any, precision: int, frame: Frame) -> str:
    kind = type(value)
    number = kind in (int, Uint)
    if precision > MOST_DIGITS:
        raise EvaluationError(f"error during formatting: precision {precision} is greater than {MOST_DIGITS}")
    if verb == "s":
        return _plain(value, frame)
    if verb == "d" and (number or (kind is float and not math.isfinite(value))):
        return plain_double(value) if kind is float else str(int(value))
    if verb in "fe" and (number or kind is float):
        if not math.isfinite(value):
            return plain_double(float(value))
        return f"{value:.{precision}{verb}}"
    if verb == "b" and (number or kind is bool):
        return f"{int(value):b}"
    if verb in "xX" and (number or kind in (str, bytes)):
        shown = f"{int(value):x}" if number else (value.encode() if kind is str else value).hex()
        return shown.upper() if verb == "X" else shown
    if verb == "o" and number:
        return f"{int(value):o}"
    if verb in "sdfebxXo":
        raise EvaluationError(
            f"error during formatting: could not convert argument of type {kind_of(value)} for %{verb}"
        )
    raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')


def _plain(value: Any, frame: Frame) -> str:
    """Return a value as %s shows it; raises BudgetExceeded before the text becomes too long."""
    if value is None:
        return "null"
    if type(value) is list:
        return f"[{_joined((_plain(item, frame) for item in value), frame)}]"
    if type(value) is dict:
        entries = (f"{_plain(k, frame)}: {_plain(v, frame)}" for k, v in value.items())
        return f"{{{_joined(sorted(_spending(entries, frame)), frame)}}}"
    return to_string(value)


def _spending(parts: Iterable[str], frame: Frame) -> Iterator[str]:
    for part in parts:
        frame.spend(len(part) // 10)
        yield part


def _joined(parts: Iterable[str], frame: Frame) -> str:
    return ", ".join(_spending(parts, frame))


def find(a: Any, expression: Any) -> str:
    text(a, expression)
    found = pattern(expression).search(a)
    return str(found.group()) if found else ""


MATCH_COST = 2
"""Units of cost of a match: its objects take 3 µs."""


def find_all(frame: Frame, a: Any, expression: Any, count: Any = -1) -> list[str]:
    """Return all matches, or the first `count`; raises BudgetExceeded.

    Each match costs another search in the rest of the text, because a pattern may have to read it to the end every time.
    The call's own charge covers the first ones.
    """
    text(a, expression)
    _whole(count)
    found: list[str] = []
    if count == 0:
        return found
    cost, charged = 0, searched(a, expression)
    for match in pattern(expression).finditer(a):
        found.append(match.group())
        if len(found) == count:
            break
        cost += MATCH_COST + search_cost(expression, len(a) - match.end())
        if cost > charged:
            frame.spend(cost - charged)
            charged = cost
    return found


# -- lists and sets -------------------------------------------------------------------------------------------------
def _items(a: Any) -> list[Any]:
    if type(a) is not list:
        raise no_overload()
    return a


def is_sorted(a: Any) -> bool:
    items = _items(a)
    return all(not less(right, left) for left, right in itertools.pairwise(items))


def total(a: Any) -> Any:
    items = _items(a)
    if not items:
        return 0
    if type(items[0]) not in (int, Uint, float, Duration):
        raise no_overload()
    return functools.reduce(plus, items)


def _most(name: str, better: Function) -> Function:
    def function(a: Any) -> Any:
        items = _items(a)
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        found = items[0]
        for item in items[1:]:
            if better(item, found):
                found = item
        return found

    return function


def sets_contain(frame: Frame, a: Any, b: Any) -> bool:
    return all(any(equal_item(frame, x, y) for y in _items(a)) for x in _items(b))


def sets_equivalent(frame: Frame, a: Any, b: Any) -> bool:
    return sets_contain(frame, a, b) and sets_contain(frame, b, a)


def sets_intersect(frame: Frame, a: Any, b: Any) -> bool:
    return any(any(equal_item(frame, x, y) for y in _items(a)) for x in _items(b))


# -- named formats --------------------------------------------------------------------------------------------------
def _prefix(check: Function) -> Function:
    return lambda value: check(value[:-1] + "a" if value.endswith("-") else value)


def _schema_format(name: str) -> Function:
    return lambda value: [] if formats.valid(name, value) else [f"invalid {name}"]


_NAMED: dict[str, Function] = {
    "dns1123Label": names.dns1123_label,
    "dns1123Subdomain": names.dns1123_subdomain,
    "dns1035Label": names.dns1035_label,
    "qualifiedName": names.qualified_name,
    "dns1123LabelPrefix": _prefix(names.dns1123_label),
    "dns1123SubdomainPrefix": _prefix(names.dns1123_subdomain),
    "dns1035LabelPrefix": _prefix(names.dns1035_label),
    "labelValue": names.label_value,
    "uri": _schema_format("uri"),
    "uuid": _schema_format("uuid"),
    "byte": _schema_format("byte"),
    "date": _schema_format("date"),
    "datetime": _schema_format("datetime"),
}


_LONGEST_NAME = max(map(len, _NAMED))


def named_format(name: Any) -> Optional:
    text(name)
    return Optional(Format(name)) if len(name) <= _LONGEST_NAME and name in _NAMED else NONE


def validate(a: Any, value: Any) -> Optional:
    if type(a) is not Format:
        raise no_overload()
    text(value)
    problems = _NAMED[a.name](value)
    return Optional(list(problems)) if problems else NONE


FUNCTIONS: dict[str, Function] = {
    "charAt": char_at,
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "join": joined,
    "lowerAscii": lower_ascii,
    "upperAscii": upper_ascii,
    "replace": replace,
    "reverse": reverse,
    "split": split,
    "substring": substring,
    "trim": trim,
    "quote": quote,
    "strings.quote": quote,
    "format": format_,
    "find": find,
    "findAll": find_all,
    "isSorted": is_sorted,
    "sum": total,
    "min": _most("min", less),
    "max": _most("max", lambda a, b: less(b, a)),
    "sets.contains": sets_contain,
    "sets.equivalent": sets_equivalent,
    "sets.intersects": sets_intersect,
    "format.named": named_format,
    "validate": validate,
}
FUNCTIONS |= {f"format.{name}": functools.partial(Format, name) for name in _NAMED}
