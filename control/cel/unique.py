"""Lists of Kubernetes' types set and map: equal in any order, and joined without duplicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from control.cel.errors import no_overload
from control.cel.syntax import Call
from control.cel.types import Type
from control.cel.values import equal

Function = Callable[..., Any]


def unique(node: Call) -> Type | None:
    types = [arg.type for arg in node.args]
    return types[0] if types[0].unique else types[-1] if types[-1].unique else None


def _identity(item: Any, type_: Type) -> Any:
    if type_.unique == "map" and type(item) is dict:
        return [item.get(key) for key in type_.keys]
    return item


def on_unique(name: str, type_: Type) -> Function:
    """`==` without regard to order, and `+` as a union in which the right side's items replace those of the same key."""

    def same(a: Any, b: Any) -> bool:
        if type(a) is not list or type(b) is not list:
            return equal(a, b)
        return len(a) == len(b) and all(any(equal(x, y) for y in b) for x in a)

    def union(a: Any, b: Any) -> Any:
        if type(a) is not list or type(b) is not list:
            raise no_overload()
        found = list(a)
        for item in b:
            identity = _identity(item, type_)
            for place, other in enumerate(found):
                if equal(_identity(other, type_), identity):
                    found[place] = item
                    break
            else:
                found.append(item)
        return found

    if name == "_+_":
        return union
    return same if name == "_==_" else lambda a, b: not same(a, b)
