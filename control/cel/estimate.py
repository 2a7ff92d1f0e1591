"""The most an expression can cost, from the greatest sizes that its types allow: cel-go's cost estimator.

What has no declared limit is taken as large as a request may be. The costs are those of the runtime (`compiler`) for the
worst case, loops multiplied.
"""

from __future__ import annotations

import math

from control.cel.syntax import Bind, Call, Ident, Literal, Loop, MakeList, MakeMap, Node, Select
from control.cel.types import Type

REQUEST_SIZE = 3 * 1024 * 1024
"""Bytes of a request at most."""
CONVERTED = 40
"""Characters of a timestamp or a duration, for which upstream's estimate counts 1; longer ones cost more when evaluated."""
_MOST = 1 << 63
_COMPARED = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_PATTERNS = frozenset({"matches", "find", "findAll"})
_TRAVERSED = frozenset(
    "string bytes lowerAscii upperAscii split substring trim reverse quote format indexOf"
    " lastIndexOf charAt quantity isQuantity url isURL ip isIP cidr isCIDR semver isSemver".split()
)
_KEEPING = frozenset({"lowerAscii", "upperAscii", "substring", "trim"})
"""Functions whose result is at most as large as the string that they are called on."""
_COUNTED = frozenset("isSorted sum min max".split())
_PARSING = {"containsIP": 4, "containsCIDR": 7}
"""Cost besides the traversal of a text: addresses have up to 16 bytes, which are compared once or more."""
_FORMAT_FACTOR = 32
"""A quarter of the longest expression of a named format (MaxNameFormatRegexSize)."""


def estimate(node: Node) -> int:
    """Return the greatest cost of an expression, at most 2^63."""
    return min(_cost(node), _MOST)


def size(type_: Type) -> int:
    """Return the greatest size of a value of a type."""
    if type_.size is not None:
        return type_.size
    if type_.kind in ("string", "bytes"):
        return REQUEST_SIZE
    if type_.kind == "list":
        return REQUEST_SIZE // max(1, least(type_.params[0]) + 1)
    if type_.kind == "map":
        return REQUEST_SIZE // max(1, least(type_.params[1]) + 5)
    if type_.kind == "dyn":
        return REQUEST_SIZE
    return 1


def least(type_: Type) -> int:
    """Return the bytes that the smallest JSON value of a type takes: of an object with its required fields."""
    if type_.kind == "timestamp":
        return 22
    if type_.required:
        if type_.smallest is None:
            fields = [(name, part) for name, part in type_.fields.values() if name in type_.required]
            type_.smallest = 2 + sum(len(name) + 4 + least(part) for name, part in fields)
        return type_.smallest
    return {"bool": 4, "object": 2, "list": 2, "map": 2, "string": 2, "duration": 4}.get(type_.kind, 1)


def _tenth(number: int) -> int:
    return math.ceil(number * 0.1)


def _cost(node: Node) -> int:
    if isinstance(node, Literal):
        return 0
    if isinstance(node, Ident):
        return 1
    if isinstance(node, Select):
        return _cost(node.operand) + 1
    if isinstance(node, MakeList):
        return 10 + sum(map(_cost, node.items))
    if isinstance(node, MakeMap):
        return 30 + sum(_cost(key) + _cost(value) for key, value in node.entries)
    if isinstance(node, Bind):
        return 10 + _cost(node.value) + _cost(node.body)
    if isinstance(node, Loop):
        each = _cost(node.body) + (_cost(node.condition) if node.condition is not None else 0)
        judging = node.macro in ("all", "exists", "exists_one")
        each += 3 if judging else 13
        return _cost(node.over) + size(node.over.type) * each + (1 if judging else 30)
    assert isinstance(node, Call)
    args = node.all_args
    if node.function == "_?_:_":
        condition, yes, no = map(_cost, args)
        return condition + max(yes, no)
    return sum(map(_cost, args)) + _own(node.function, [_size(arg) for arg in args], args)


def _size(node: Node) -> int:
    """Return the greatest size of an expression's value."""
    if isinstance(node, Call) and node.function in _KEEPING and node.all_args:
        return min(size(node.type), _size(node.all_args[0]))
    return size(node.type)


def _own(name: str, sizes: list[int], args: list[Node]) -> int:
    if name in ("_&&_", "_||_"):
        return 0
    if name in _COMPARED:
        return max(1, _tenth(min(sizes)))
    if name == "_+_":
        return max(1, _tenth(sum(sizes))) if args[0].type.kind in ("string", "bytes", "list", "dyn") else 1
    if name == "@in":
        return sizes[1] if args[1].type.kind == "list" else 1
    if name == "contains":
        return max(1, _tenth(sizes[0]) * _tenth(sizes[1]))
    if name in ("startsWith", "endsWith"):
        return max(1, _tenth(sizes[1]))
    if name in _PATTERNS and len(sizes) > 1:
        return max(1, _tenth(1 + sizes[0]) * math.ceil(sizes[1] * 0.25))
    if name == "validate" and len(sizes) > 1:
        return max(1, _tenth(sizes[1]) * _FORMAT_FACTOR)
    if name in _PARSING and len(sizes) > 1:
        return _PARSING[name] + (_tenth(sizes[1]) if args[1].type.kind == "string" else 0)
    if name == "ip.isCanonical" and sizes:
        return max(1, _tenth(2 * sizes[0]))
    if name == "replace" and len(sizes) > 2:
        return max(1, _tenth(sizes[0] * max(1, sizes[2])))
    if name == "join":
        item = size(args[0].type.params[0]) if args[0].type.params else REQUEST_SIZE
        return max(1, _tenth(min(sizes[0] * item, REQUEST_SIZE) + sizes[0] * (sizes[1] if len(sizes) > 1 else 0)))
    if name.startswith("sets.") and len(sizes) == 2:
        return max(1, sizes[0] * sizes[1])
    if name in ("timestamp", "duration") and sizes:
        return max(1, _tenth(min(sizes[0], CONVERTED)))
    if name in _TRAVERSED and sizes:
        return max(1, _tenth(sizes[0]))
    if name in _COUNTED and sizes:
        return sizes[0]
    return 1
