"""Names, versions and conditions of all definitions, by group, without their schemas.

Who gives a definition its names compares them with those of all others of the group. Each definition is decoded once for that,
and not for each other one: a group may have thousands of definitions, and one may have a megabyte.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import msgspec

from control.event_loop.pacing import TimeSlice
from control.registry.apiextensions import stored
from control.registry.apiextensions.stored import Definition
from control.storage.entry import Entry
from control.storage.resource_cache import ResourceCache


class _Group(msgspec.Struct):
    """The definitions of a group by name, and the definitions that have accepted a name of resources, or of kinds."""

    definitions: dict[str, Definition] = msgspec.field(default_factory=dict)
    resources: dict[str, set[str]] = msgspec.field(default_factory=dict)
    kinds: dict[str, set[str]] = msgspec.field(default_factory=dict)


class _Known(msgspec.Struct, frozen=True):
    revision: int
    definition: Definition | None
    """None for an object that only stands in the folder of definitions."""


class Taken(Container[str]):
    """Names that another definition than `own` has accepted."""

    def __init__(self, owners: Mapping[str, set[str]], own: str) -> None:
        self._owners, self._own = owners, own

    def __contains__(self, name: object) -> bool:
        owners = self._owners.get(name) if isinstance(name, str) else None
        return owners is not None and owners != {self._own}


class DefinitionIndex:
    """Follows the watch cache whenever it is refreshed."""

    def __init__(self, cached: ResourceCache) -> None:
        self._cached, self._changed = cached, -1
        self._known: dict[str, _Known] = {}
        self._groups: dict[str, _Group] = {}

    async def refresh(self) -> None:
        """Decode the definitions that came or changed, with pauses."""
        if self._changed == (changed := self._cached.changed):
            return
        time_slice = TimeSlice()
        for entry in self._cached.list().entries:
            if not self._has(entry):
                await time_slice.step(len(entry.data))
                if self._cached.get(entry.key) is entry and not self._has(entry):
                    self._remove(entry.key)
                    self._put(entry)
        for key in [key for key in self._known if self._cached.get(key) is None]:
            self._remove(key)
        self._changed = changed

    def every(self) -> Iterator[Definition]:
        """Yield all definitions."""
        for group in self._groups.values():
            yield from group.definitions.values()

    def of_group(self, group: str) -> list[Definition]:
        """Return the definitions of a group."""
        found = self._groups.get(group)
        return [] if found is None else list(found.definitions.values())

    def taken(self, group: str, own: str) -> tuple[Taken, Taken]:
        """Return the names of resources and those of kinds that other definitions of a group have accepted."""
        found = self._groups.get(group) or _Group()
        return Taken(found.resources, own), Taken(found.kinds, own)

    def _has(self, entry: Entry) -> bool:
        known = self._known.get(entry.key)
        return known is not None and known.revision >= entry.revision

    def _put(self, entry: Entry) -> None:
        definition = stored.read(entry.data)
        self._known[entry.key] = _Known(entry.revision, definition)
        if definition is not None:
            group = self._groups.setdefault(definition.spec.group, _Group())
            group.definitions[definition.name] = definition
            for owners, names in ((group.resources, definition.resources), (group.kinds, definition.kinds)):
                for name in names:
                    owners.setdefault(name, set()).add(definition.name)

    def _remove(self, key: str) -> None:
        known = self._known.pop(key, None)
        definition = known.definition if known is not None else None
        if definition is None:
            return
        group = self._groups[definition.spec.group]
        del group.definitions[definition.name]
        for owners, names in ((group.resources, definition.resources), (group.kinds, definition.kinds)):
            for name in names:
                owners[name].discard(definition.name)
                if not owners[name]:
                    del owners[name]
        if not group.definitions:
            del self._groups[definition.spec.group]
