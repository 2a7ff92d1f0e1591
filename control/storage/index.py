"""The objects of a resource by a value that each holds, as EndpointSlices by their Service, so that nobody goes through all."""

from __future__ import annotations

from collections.abc import Callable

from control.storage.entry import Entry


class Index:
    """Keys by folder and value. `read` finds the value in an object's JSON; "": it has none."""

    def __init__(self, read: Callable[[bytes], str]) -> None:
        self._read = read
        self._values: dict[str, str] = {}
        self._keys: dict[tuple[str, str], set[str]] = {}

    def put(self, entry: Entry) -> None:
        """Add an object, or process its change."""
        self.drop(entry.key)
        value = self._read(entry.data)
        if value:
            self._values[entry.key] = value
            self._keys.setdefault((_folder(entry.key), value), set()).add(entry.key)

    def drop(self, key: str) -> None:
        """Forget an object."""
        value = self._values.pop(key, "")
        if value:
            place = _folder(key), value
            self._keys[place].discard(key)
            if not self._keys[place]:
                del self._keys[place]

    def clear(self) -> None:
        """Forget all objects."""
        self._values.clear()
        self._keys.clear()

    def keys(self, folder: str, value: str) -> list[str]:
        """Return the keys of a folder's objects that hold a value."""
        return list(self._keys.get((folder, value), ()))


def _folder(key: str) -> str:
    return key[: key.rindex("/") + 1]
