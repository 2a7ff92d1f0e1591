"""Index of a resource's objects by a value in each, for example EndpointSlices by their Service."""

from __future__ import annotations

from collections.abc import Callable

from control.storage.entry import Entry


class Index:
    """Keys by folder and value. `read` decodes the value from an object's JSON and returns "" if there is none."""

    def __init__(self, read: Callable[[bytes], str]) -> None:
        self._read = read
        self._values: dict[str, str] = {}
        self._keys: dict[tuple[str, str], set[str]] = {}

    def empty(self) -> Index:
        """Return an index by the same value without objects."""
        return Index(self._read)

    def put(self, entry: Entry) -> None:
        """Add or update an object."""
        self.drop(entry.key)
        value = self._read(entry.data)
        if value:
            self._values[entry.key] = value
            self._keys.setdefault((_folder(entry.key), value), set()).add(entry.key)

    def drop(self, key: str) -> None:
        """Remove an object."""
        value = self._values.pop(key, "")
        if value:
            place = _folder(key), value
            self._keys[place].discard(key)
            if not self._keys[place]:
                del self._keys[place]

    def keys(self, folder: str, value: str) -> list[str]:
        """Return the keys of a folder's objects with a value."""
        return list(self._keys.get((folder, value), ()))


def _folder(key: str) -> str:
    return key[: key.rindex("/") + 1]
