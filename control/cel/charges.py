"""Cost of calls while an expression runs: cel-go's runtime costs, by the sizes of the actual values.

A string costs a tenth of its length for each traversal. A function's result costs too if it can be much larger than its
arguments. A function that is not in the table costs 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from control.cel.patterns import search_cost
from control.cel.values import URL, size_of

Charge = Callable[..., int]


def _tenth(size: int) -> int:
    return math.ceil(size * 0.1)


def _compare(a: Any, b: Any) -> int:
    return max(1, _tenth(min(size_of(a), size_of(b))))


def _traversal(*values: Any) -> int:
    return max(1, _tenth(size_of(values[0])))


def _pattern(a: Any, b: Any, *_: Any) -> int:
    """Charge as cel-go, or by what the pattern compiles to where that is much longer than itself."""
    cost = max(1, _tenth(1 + size_of(a)) * math.ceil(size_of(b) * 0.25))
    return max(cost, search_cost(b, a)) if type(a) is type(b) is str else cost


def _product(a: Any, b: Any) -> int:
    return max(1, size_of(a) * size_of(b))


def _replaced(a: Any, old: Any, new: Any, *_: Any) -> int:
    """Charge the result too, which can be the square of the arguments."""
    if type(a) is not str or type(old) is not str:
        return 1
    return max(1, _tenth(len(a) + a.count(old) * size_of(new)))


def _url_part(part: str) -> Charge:
    """Charge what is decoded of a URL, where that is more than a few characters; cel-go charges 1."""
    return lambda a: 1 + max(0, len(getattr(a, part)) - 16) // 2 if type(a) is URL else 1


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
    "@in": lambda a, b: max(1, size_of(b)) if type(b) is list else 1,
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
}
_TRAVERSING = (
    "string bytes timestamp duration lowerAscii upperAscii split substring trim reverse quote format indexOf"
    " lastIndexOf charAt quantity isQuantity url isURL ip isIP cidr isCIDR semver isSemver validate"
)
CHARGES.update(dict.fromkeys(_TRAVERSING.split(), _traversal))
CHARGES.update(dict.fromkeys(("isSorted", "sum", "min", "max"), lambda a: max(1, size_of(a))))
