"""Lists of Kubernetes' types set and map: equal in any order, and joined without duplicates."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from control.cel.errors import no_overload
from control.cel.frame import Frame
from control.cel.syntax import Call
from control.cel.types import Type
from control.cel.values import equal, equal_item

Function = Callable[..., Any]


def unique(node: Call) -> Type | None:
    types = [arg.type for arg in node.args]
    return types[0] if types[0].unique else types[-1] if types[-1].unique else None


def _identity(item: Any, type_: Type) -> Any:
    if type_.unique == "map" and type(item) is dict:
        return [item.get(key) for key in type_.keys]
    return item


def _hashed(identity: Any) -> Hashable | None:
    """Return a value that is equal for equal scalars or lists of them, None for others: bool is no number, 1 is 1.0."""
    if type(identity) is list:
        parts = [_hashed_scalar(each) for each in identity]
        return None if None in parts else tuple(parts)
    return _hashed_scalar(identity)


def _hashed_scalar(value: Any) -> Hashable | None:
    return (type(value) is bool, value) if isinstance(value, str | int | float | bool | None) else None


class _Index:
    """The items of a list, found by their identity: by its hash, one by one those that have none."""

    def __init__(self, type_: Type, frame: Frame) -> None:
        self._type, self._frame = type_, frame
        self._hashed: dict[Hashable, list[int]] = {}
        self._others: list[int] = []
        self.items: list[Any] = []

    def add(self, item: Any) -> None:
        key = _hashed(_identity(item, self._type))
        (self._others if key is None else self._hashed.setdefault(key, [])).append(len(self.items))
        self.items.append(item)

    def has(self, item: Any) -> bool:
        """Return whether an item is equal to this one; raises BudgetExceeded."""
        for place in self.places(item):
            self._frame.spend(1)
            if equal_item(self._frame, item, self.items[place]):
                return True
        return False

    def places(self, item: Any) -> list[int]:
        """Return the positions of the items with the identity of this one; raises BudgetExceeded."""
        identity = _identity(item, self._type)
        key = _hashed(identity)
        if key is not None:
            return self._hashed.get(key, [])
        return [place for place in self._others if self._same(self.items[place], identity)]

    def _same(self, item: Any, identity: Any) -> bool:
        self._frame.spend(1)
        return equal_item(self._frame, _identity(item, self._type), identity)


def _index(items: list[Any], type_: Type, frame: Frame) -> _Index:
    index = _Index(type_, frame)
    frame.spend(len(items) // 4)
    for item in items:
        index.add(item)
    return index


def on_unique(name: str, type_: Type) -> Function:
    """`==` without regard to order, and `+` as a union in which the right side's items replace those of the same key."""

    def same(frame: Frame, a: Any, b: Any) -> bool:
        if type(a) is not list or type(b) is not list:
            return equal(frame, a, b)
        if len(a) != len(b):
            return False
        index = _index(b, type_, frame)
        return all(map(index.has, a))

    def union(frame: Frame, a: Any, b: Any) -> Any:
        if type(a) is not list or type(b) is not list:
            raise no_overload()
        index = _index(a, type_, frame)
        for item in b:
            if places := index.places(item):
                index.items[places[0]] = item
            else:
                index.add(item)
        return index.items

    if name == "_+_":
        return union
    return same if name == "_==_" else lambda frame, a, b: not same(frame, a, b)
