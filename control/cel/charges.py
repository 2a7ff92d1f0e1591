"""Cost of calls while an expression runs: cel-go's runtime costs, by the sizes of the actual values.

A string costs a tenth of its length for each traversal. A function's result costs too if it can be much larger than its
arguments. A function that is not in the table costs 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from control.cel import times
from control.cel.patterns import compilation_cost, search_cost
from control.cel.values import URL, Semver, size_of

Charge = Callable[..., int]
_COMPARED_AT_ONCE = 1000
"""Characters that are compared for a unit where cel-go charges 1 whatever the length."""
_ITEMS_COMPARED = 4
"""Items or entries that are compared for a unit."""
_ZONE_COST = 30
"""Units of a call with the name of a time zone: a file may have to be read."""
_FORMAT_FACTOR = 8
"""Units for ten characters that are checked against a named format: of the expressions of 30 characters that names have."""
_CHECK_COST = 50
"""Units of an authorization check. Upstream's are 350,000, so that an expression makes two at most."""


def _tenth(size: int) -> int:
    return math.ceil(size * 0.1)


def _compare(a: Any, b: Any) -> int:
    kind = type(a)
    if kind is Semver:
        return _versions(a, b)
    if kind is URL:
        return 1 + len(a.text) // _COMPARED_AT_ONCE
    least = min(size_of(a), size_of(b))
    return max(1, _tenth(least), least // _ITEMS_COMPARED if kind is list or kind is dict else 0)


def _versions(a: Any, b: Any) -> int:
    """Charge the comparison of the parts of versions; quantities cost 1."""
    return 1 + min(len(a.pre), len(b.pre)) // 8 if type(a) is Semver and type(b) is Semver else 1


def _at_key(a: Any, b: Any) -> int:
    """Charge what looks up a key in a map, which compares it with an equal one."""
    if type(b) is str:
        return 1 + len(b) // _COMPARED_AT_ONCE
    return 1 + len(b.pre) // 8 if type(b) is Semver else 1


def _contained(a: Any, b: Any) -> int:
    return max(1, size_of(b)) if type(b) is list else _at_key(b, a)


def _items(a: Any) -> int:
    """Charge a list by its items, texts by their lengths too: each is compared with another."""
    return max(1, sum(map(_compared, a, a))) if type(a) is list else 1


def _compared(a: Any, b: Any) -> int:
    return max(1, size_of(a) // 10)


def _scanned(a: Any, *_: Any) -> int:
    """Charge 1 for a number as it is usually written, and for longer texts their length."""
    return 1 + size_of(a) // 64


def _part_of_time(a: Any, zone: Any = "") -> int:
    return 1 if type(zone) is not str or times.without_file(zone) else _ZONE_COST


def _canonical(a: Any) -> int:
    return max(1, math.ceil(size_of(a) * 0.2))


def _parsed(base: int) -> Charge:
    """Charge `base`, and for a text as second argument the traversal of it."""
    return lambda a, b: base + (_tenth(len(b)) if type(b) is str else 0)


def _validated(a: Any, b: Any) -> int:
    return _tenth(1 + size_of(b)) * _FORMAT_FACTOR


def _selector(a: Any, b: Any) -> int:
    """Charge a selector's parsing, and a requirement for each two of its characters."""
    return 10 + _tenth(size_of(b)) + 50 * math.ceil(size_of(b) / 2)


def _traversal(*values: Any) -> int:
    return max(1, _tenth(size_of(values[0])))


def searched(a: str, b: str) -> int:
    """Charge a search as cel-go, or by what the pattern compiles to where that is much longer than itself."""
    return max(_tenth(1 + len(a)) * math.ceil(max(1, len(b)) * 0.25), search_cost(b, len(a)))


def _pattern(a: Any, b: Any, *_: Any) -> int:
    return searched(a, b) + compilation_cost(b) if type(a) is type(b) is str else 1


def _product(a: Any, b: Any) -> int:
    return max(1, size_of(a), size_of(b), size_of(a) * size_of(b))


def _replaced(a: Any, old: Any, new: Any, *_: Any) -> int:
    """Charge the result too, which can be the square of the arguments."""
    if type(a) is not str or type(old) is not str:
        return 1
    return max(1, _tenth(len(a) + a.count(old) * size_of(new)))


def _url_part(part: str) -> Charge:
    """Charge what is decoded of a URL, where that is more than a few characters; cel-go charges 1."""
    return lambda a: 1 + max(0, len(getattr(a, part)) - 16) // 2 if type(a) is URL else 1


def _host(a: Any) -> int:
    return 1 + len(a.host) // _COMPARED_AT_ONCE if type(a) is URL else 1


def _joined(a: Any, separator: Any = "") -> int:
    if type(a) is not list:
        return 1
    return max(1, _tenth(sum(map(size_of, a)) + len(a) * size_of(separator)))


CHARGES: dict[str, Charge] = {
    "_==_": _compare,
    "_!=_": _compare,
    "_<_": _compare,
    "_<=_": _compare,
    "_>_": _compare,
    "_>=_": _compare,
    "_+_": lambda a, b: max(1, _tenth(size_of(a) + size_of(b))) if type(a) in (str, bytes, list) else 1,
    "@in": _contained,
    "_[_]": _at_key,
    "_[?_]": _at_key,
    "contains": lambda a, b: max(1, _tenth(size_of(a)) * _tenth(size_of(b))),
    "startsWith": lambda a, b: max(1, _tenth(size_of(b))),
    "endsWith": lambda a, b: max(1, _tenth(size_of(b))),
    "matches": _pattern,
    "find": _pattern,
    "findAll": _pattern,
    "getEscapedPath": _url_part("path"),
    "getQuery": _url_part("query"),
    "sets.contains": _product,
    "sets.equivalent": _product,
    "sets.intersects": _product,
    "replace": _replaced,
    "join": _joined,
    "getHost": _host,
    "getHostname": _host,
    "getPort": _host,
    "ip.isCanonical": _canonical,
    "containsIP": _parsed(1),
    "containsCIDR": _parsed(3),
    "validate": _validated,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    "check": lambda a, b: _CHECK_COST,
}
_TRAVERSING = (
    "string bytes timestamp duration lowerAscii upperAscii split substring trim reverse quote format indexOf"
    " lastIndexOf charAt quantity isQuantity url isURL ip isIP cidr isCIDR semver isSemver strings.quote jsonpatch.escapeKey"
)
CHARGES.update(dict.fromkeys(_TRAVERSING.split(), _traversal))
CHARGES.update(dict.fromkeys(("isSorted", "sum", "min", "max"), _items))
CHARGES.update(dict.fromkeys(times.FUNCTIONS, _part_of_time))
CHARGES.update(dict.fromkeys(("int", "uint", "double"), _scanned))
CHARGES.update(dict.fromkeys(("isLessThan", "isGreaterThan", "compareTo"), _versions))
