"""Watchers of one folder: those without a selector, and groups of those with equal selectors.

Groups whose selectors require certain values of a label or a field are looked up by the values of the changed object.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator
from itertools import chain

from control.storage.selector import Part, Selector, values_of
from control.storage.watcher import Change, Watcher
from control.storage.watcher_group import Account, Group

log = logging.getLogger(__name__)
MOST_NAMES = 32
"""Labels and fields of a folder that are looked up; selectors that require others are compared with each change."""
_Groups = dict[Group, None]


class WatchedFolder:
    """Watchers of one folder, or of one object."""

    __slots__ = ("_by_value", "_groups", "_other", "plain")

    def __init__(self) -> None:
        self.plain: dict[Watcher, None] = {}
        self._groups: dict[Hashable, Group] = {}
        self._other: _Groups = {}
        """Groups that are not looked up."""
        self._by_value: dict[tuple[Part, str], dict[str, _Groups]] = {}

    def __bool__(self) -> bool:
        return bool(self.plain or self._groups)

    def watchers(self) -> Iterator[Watcher]:
        """Return all watchers, which may be closed meanwhile."""
        return iter([*self.plain, *chain.from_iterable(group.watchers for group in self._groups.values())])

    def groups(self) -> list[Group]:
        """Return the watchers with selectors."""
        return list(self._groups.values())

    def affected(self, change: Change) -> list[Group]:
        """Return the groups whose selectors may match the object now, or did before."""
        found = list(self._other)
        if not self._by_value:
            return found
        states = [state for state in (change.entry, change.previous) if state is not None]
        try:
            for (part, name), by_value in self._by_value.items():
                values = {values_of(state, part, name) for state in states}
                chosen = [groups for value in values if value is not None and (groups := by_value.get(value))]
                # A group may require one of several values.
                found += chosen[0] if len(chosen) == 1 else dict.fromkeys(chain.from_iterable(chosen))
        except Exception:
            log.exception("selectors are compared one by one: labels or fields of %s cannot be read", change.key)
            return self.groups()
        return found

    def group(self, selector: Selector, account: Account, limit: int) -> Group:
        """Return the group of an owner for a selector."""
        key: Hashable = selector if selector.key is None else (account.owner, selector.key, limit)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, selector, account, limit)
            for place in self._places(selector):
                place[group] = None
        return group

    def add(self, watcher: Watcher, group: Group | None) -> None:
        """Add a watcher, to its group if it has a selector."""
        (self.plain if group is None else group.watchers)[watcher] = None

    def remove(self, watcher: Watcher, group: Group | None) -> None:
        """Remove a watcher, and its group with the last one."""
        if group is None:
            self.plain.pop(watcher, None)
            return
        group.remove(watcher)
        if not group.watchers and self._groups.get(group.key) is group:
            del self._groups[group.key]
            self._forget(group)

    def _forget(self, group: Group) -> None:
        self._other.pop(group, None)
        required = group.selector.required
        if required is None or (by_value := self._by_value.get(required[:2])) is None:
            return
        for value in required.values:
            if groups := by_value.get(value):
                groups.pop(group, None)
                if not groups:
                    del by_value[value]
        if not by_value:
            del self._by_value[required[:2]]

    def _places(self, selector: Selector) -> list[_Groups]:
        required = selector.required
        if required is None:
            return [self._other]
        by_value = self._by_value.get(required[:2])
        if by_value is None:
            if len(self._by_value) >= MOST_NAMES:
                return [self._other]
            by_value = self._by_value[required[:2]] = {}
        return [by_value.setdefault(value, {}) for value in required.values]
