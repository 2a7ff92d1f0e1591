"""Budget of a resource that connections hold, with a limit in total or for each owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Budget(Generic[T]):
    """Bytes by connection and by owner (an address or a user), with a limit in all and one of each owner.

    `group` returns a part of an owner's connections: a connection is closed in the group that holds most.
    """

    def __init__(self, limit: int, each: int, group: Callable[[T], str] = lambda connection: "") -> None:
        self.limit, self.each, self.total = limit, each, 0
        self._group = group
        self.sizes: dict[T, int] = {}
        self._owners: dict[str, dict[T, None]] = {}
        self._totals: dict[str, int] = {}

    def note(self, connection: T, owner: str, size: int) -> None:
        """Note what a connection holds."""
        before = self.sizes.pop(connection, 0)
        if not before and not size:
            return
        self.total += size - before
        self._totals[owner] = self._totals.get(owner, 0) + size - before
        if size:
            self.sizes[connection] = size
            self._owners.setdefault(owner, {})[connection] = None
            return
        entries = self._owners[owner]
        del entries[connection]
        if not entries:
            del self._owners[owner], self._totals[owner]

    def move(self, connection: T, owner: str, other: str) -> None:
        """Count what a connection holds with another owner from now on."""
        size = self.sizes.get(connection, 0)
        self.note(connection, owner, 0)
        self.note(connection, other, size)

    def largest(self, owner: str, first: Callable[[T], bool]) -> T | None:
        """Return the connection to close where this owner or all together hold too much: one that `first` names, if it can be.

        A connection that is alone is let be: then there is one large answer, and nobody who collects them.
        """
        entries = self._owners.get(owner, {})
        if self._totals.get(owner, 0) > self.each and len(entries) > 1:
            return self._heaviest(entries)
        if self.total <= self.limit or len(self.sizes) == 1:
            return None
        return self._heaviest([each for each in self.sizes if first(each)] or self.sizes)

    def _heaviest(self, entries: Iterable[T]) -> T:
        """Return the largest connection of the group that holds most."""
        groups = {each: self._group(each) for each in entries}
        totals: dict[str, int] = {}
        for each, group in groups.items():
            totals[group] = totals.get(group, 0) + self.sizes[each]
        return max(groups, key=lambda each: (totals[groups[each]], self.sizes[each]))
