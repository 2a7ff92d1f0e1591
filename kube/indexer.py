"""Objects by key, with indexes: the store of an informer."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from kube.object_names import metadata_of
from kube.shrinking import shrunk

T = TypeVar("T")

IndexFunction = Callable[[Any], Iterable[str]]
"""Returns the values of an object in an index."""


class Indexer(Generic[T]):
    """Objects by "namespace/name" (or "name"), and the objects of each value of each index."""

    def __init__(self, indexes: Mapping[str, IndexFunction]) -> None:
        self._objects: dict[str, T] = {}
        self._index_functions = dict(indexes)
        self._indexes: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._index_functions}

    def get(self, key: str) -> T | None:
        """Return the object of a key ("namespace/name", or "name")."""
        return self._objects.get(key)

    def list(self) -> builtins.list[T]:
        return builtins.list(self._objects.values())

    def keys(self) -> Iterable[str]:
        return self._objects.keys()

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        """Return the objects for which the index function gave this value."""
        return builtins.list(self._indexes[index].get(value, {}).values())

    def count(self, index: str, value: str) -> int:
        """Return for how many objects the index function gave this value."""
        return len(self._indexes[index].get(value, ()))

    def has_index(self, index: str, value: str) -> bool:
        """Return whether the index function gave this value for any object."""
        return value in self._indexes[index]

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Add an index; what is already known is indexed at once."""
        if name in self._index_functions:
            return
        self._index_functions[name] = function
        self._indexes[name] = {}
        for key, obj in self._objects.items():
            for value in function(obj):
                self._indexes[name].setdefault(value, {})[key] = obj

    def _put(self, key: str, obj: T) -> None:
        """Add or replace an object."""
        old = self._objects.get(key)
        self._objects[key] = obj
        self._reindex(key, old, obj)

    def _drop(self, key: str) -> T | None:
        """Remove an object and return it; None if there is none."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._objects = shrunk(self._objects)
            self._reindex(key, old, None)
        return old

    def _reindex(self, key: str, old: T | None, new: T | None) -> None:
        for name, function in self._index_functions.items():
            index = self._indexes[name]
            if old is not None:
                for value in function(old):
                    entries = index.get(value)
                    if entries is not None:
                        entries.pop(key, None)
                        if entries:
                            index[value] = shrunk(entries)
                        else:
                            del index[value]
                index = self._indexes[name] = shrunk(index)
            if new is not None:
                for value in function(new):
                    index.setdefault(value, {})[key] = new


def by_namespace(obj: Any) -> Iterable[str]:
    """Index function: the object's namespace."""
    return (metadata_of(obj).namespace or "",)
