"""Ownership graph: the known objects by UID, and the dependents of each owner. Pure.

Owners are known by their UID: an object that was recreated under the same name is another one. Changes return the UIDs
that have to be looked at because of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TypeVar

import msgspec

from control.controllers.discovery import DiscoveredResource
from control.controllers.garbage.metadata import Owner
from kube.shrinking import shrunk

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
PART = 256
"""Owner references that are processed before the event loop may run something else."""
T = TypeVar("T")
NOTHING: frozenset[str] = frozenset()


class Item(msgspec.Struct):
    """One object as last seen."""

    resource: DiscoveredResource
    namespace: str
    name: str
    uid: str
    revision: str
    owners: tuple[Owner, ...]
    finalizers: tuple[str, ...]
    deleting: bool

    @property
    def waits_for_dependents(self) -> bool:
        """Deleted in the foreground: it stays until its blocking dependents are gone."""
        return self.deleting and FOREGROUND in self.finalizers

    @property
    def orphans_dependents(self) -> bool:
        return self.deleting and ORPHAN in self.finalizers

    def answers_to(self, owner: Owner, dependent_namespace: str) -> bool:
        """True if an owner reference names this object, from an object in that namespace."""
        group = owner.api_version.rpartition("/")[0]
        return (self.resource.group, self.resource.kind, self.name) == (group, owner.kind, owner.name) and (
            not self.resource.namespaced or self.namespace == dependent_namespace
        )


class Graph:
    """Items and their dependents."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self._dependents: dict[str, dict[str, tuple[Owner, ...]]] = {}
        """UIDs of dependents, with their references to the owner, by its UID: an object may have thousands of owners."""

    def dependents(self, uid: str) -> list[Item]:
        """Return the items that name an owner, without those of other namespaces than its own: nothing of theirs is its."""
        return [self.items[name] for name, _ in self._of_its_namespace(uid)]

    def blocking(self, uid: str) -> list[Item]:
        """Return the items whose references keep an owner that waits for its dependents."""
        return [self.items[name] for name, refs in self._of_its_namespace(uid) if _blocks(refs)]

    def _of_its_namespace(self, uid: str) -> Iterator[tuple[str, tuple[Owner, ...]]]:
        owner = self.items.get(uid)
        namespace = owner.namespace if owner is not None and owner.resource.namespaced else None
        for name, refs in self._dependents.get(uid, {}).items():
            if namespace is None or self.items[name].namespace == namespace:
                yield name, refs

    def put(self, item: Item) -> set[str]:
        """Add an object or store its new state; return the UIDs to look at."""
        return set().union(*self.put_in_parts(item))

    def put_in_parts(self, item: Item) -> Iterator[Set[str]]:
        """Add an object or store its new state; yield the UIDs to look at, and nothing after each part of the work.

        Links are changed for the difference to the state before. Nothing else may change the object until the end.
        """
        old = self.items.get(item.uid)
        look: set[str] = set()
        if item.owners or (old is not None and old.owners):
            yield from self._relink(item, old.owners if old is not None else (), look)
        else:
            self.items[item.uid] = item
        if item.waits_for_dependents and not (old is not None and old.waits_for_dependents):
            look |= {item.uid, *self._dependents.get(item.uid, ())}
        if item.orphans_dependents and not (old is not None and old.orphans_dependents):
            look.add(item.uid)
        yield {uid for uid in look if uid in self.items}

    def _relink(self, item: Item, before: tuple[Owner, ...], look: set[str]) -> Iterator[Set[str]]:
        """Store an object and the links to its owners, in parts; add the UIDs to look at to `look` and yield nothing."""
        changed: dict[str, list[Owner]] = {}
        for owners, others in ((item.owners, before), (before, item.owners)):
            known = set[Owner]()
            for part in parts(others):
                known.update(part)
                yield NOTHING
            for part in parts(owners):
                for owner in part:
                    if owner not in known:
                        changed[owner.uid] = []
                yield NOTHING
        for part in parts(item.owners if changed else ()):
            for owner in part:
                if owner.uid in changed:
                    changed[owner.uid].append(owner)
            yield NOTHING
        self.items[item.uid] = item
        for links in parts(tuple(changed.items())):
            for uid, refs in links:
                look |= self._link(uid, item.uid, tuple(refs))
            yield NOTHING

    def _link(self, owner: str, dependent: str, refs: tuple[Owner, ...]) -> set[str]:
        """Store the references of a dependent to an owner; return the UIDs to look at."""
        look: set[str] = set()
        before = self._dependents.get(owner, {}).get(dependent, ())
        if refs:
            self._dependents.setdefault(owner, {})[dependent] = refs
        else:
            self._unlink(owner, dependent)
        if refs and not before:
            look.add(dependent)
        # The owner may have waited for this reference to go, or to stop blocking it.
        if _blocks(before) and not _blocks(refs):
            look.add(owner)
        return look

    def strays(self, uid: str, before: Item | None) -> list[tuple[Item, Owner]]:
        """Return the references that an object's change has shown to lead into another namespace, where no owner may be.

        It may be the dependent, or the owner that is seen only after it. Upstream: reportInvalidNamespaceOwnerRef.
        """
        return [pair for part in self.strays_in_parts(uid, before) for pair in part]

    def strays_in_parts(self, uid: str, before: Item | None) -> Iterator[list[tuple[Item, Owner]]]:
        """Yield what `strays` returns."""
        item, known = self.items[uid], set[str]()
        if item.owners:
            for part in parts(before.owners if before is not None else ()):
                known.update(owner.uid for owner in part)
                yield []
            for part in parts(item.owners):
                yield [(item, owner) for owner in part if owner.uid not in known and self._astray(item, owner)]
        found = self._dependents.get(uid)
        if before is None and found:
            pairs = [(self.items[other], owner) for other, owners in found.items() for owner in owners]
            yield [(dependent, owner) for dependent, owner in pairs if self._astray(dependent, owner)]

    def _astray(self, dependent: Item, owner: Owner) -> bool:
        seen = self.items.get(owner.uid)
        return seen is not None and seen.resource.namespaced and seen.namespace != dependent.namespace

    def remove(self, uid: str) -> set[str]:
        """Take an object out; return the UIDs to look at: its dependents, and its owners, who may wait for it."""
        return set().union(*self.remove_in_parts(uid))

    def remove_in_parts(self, uid: str) -> Iterator[Set[str]]:
        """Take an object out; yield the UIDs to look at, and nothing after each part of the work."""
        item = self.items.get(uid)
        if item is None:
            return
        for part in parts(item.owners):
            for owner in part:
                self._unlink(owner.uid, uid)
            yield NOTHING
        del self.items[uid]
        self.items = shrunk(self.items)
        yield {found for found in self._dependents.get(uid, ()) if found in self.items}
        for part in parts(item.owners):
            yield {owner.uid for owner in part if owner.uid in self.items}

    def _unlink(self, owner: str, dependent: str) -> None:
        members = self._dependents.get(owner)
        if members is not None:
            members.pop(dependent, None)
            if not members:
                del self._dependents[owner]


def parts(found: Sequence[T]) -> Iterable[Sequence[T]]:
    """Return a sequence in parts that take some tenths of a millisecond."""
    if len(found) <= PART:
        return (found,) if found else ()
    return (found[start : start + PART] for start in range(0, len(found), PART))


def _blocks(refs: Iterable[Owner]) -> bool:
    return any(ref.block_owner_deletion for ref in refs)
