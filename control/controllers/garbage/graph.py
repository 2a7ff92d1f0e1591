"""Ownership graph: the known objects by UID, and the dependents of each owner. Pure.

Owners are known by their UID: an object that was recreated under the same name is another one. Changes return the UIDs
that have to be looked at because of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from control.controllers.discovery import Served
from control.controllers.garbage.metadata import Owner
from kube.shrinking import shrunk

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


@dataclass(slots=True)
class Item:
    """One object as last seen."""

    resource: Served
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
        """True where an owner reference names this object, from an object in that namespace."""
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
        """Return the items that name an owner."""
        return [self.items[dependent] for dependent in self._dependents.get(uid, ())]

    def has_dependents(self, uid: str) -> bool:
        return bool(self._dependents.get(uid))

    def blocking(self, uid: str) -> list[Item]:
        """Return the items whose references keep an owner that waits for its dependents."""
        found = self._dependents.get(uid, {}).items()
        return [self.items[name] for name, refs in found if _blocks(refs)]

    def put(self, item: Item) -> set[str]:
        """Add an object or store its new state; return the UIDs to look at."""
        old = self.items.get(item.uid)
        self.items[item.uid] = item
        look: set[str] = set()
        before = _by_uid(old.owners) if old else {}
        after = _by_uid(item.owners)
        for uid in before.keys() - after.keys():
            self._unlink(uid, item.uid)
        if after.keys() - before.keys():
            look.add(item.uid)
        for uid, refs in after.items():
            self._dependents.setdefault(uid, {})[item.uid] = refs
        for uid, refs in before.items():
            # The owner may have waited for this reference to go, or to stop blocking it.
            if _blocks(refs) and not _blocks(after.get(uid, ())):
                look.add(uid)
        if item.waits_for_dependents and not (old is not None and old.waits_for_dependents):
            look |= {item.uid, *self._dependents.get(item.uid, ())}
        if item.orphans_dependents and not (old is not None and old.orphans_dependents):
            look.add(item.uid)
        return {uid for uid in look if uid in self.items}

    def strays(self, uid: str, before: Item | None) -> list[tuple[Item, Owner]]:
        """Return the references that an object's change has shown to lead into another namespace, where no owner may be.

        It may be the dependent, or the owner that is seen only after it. Upstream: reportInvalidNamespaceOwnerRef.
        """
        item = self.items[uid]
        known = {owner.uid for owner in before.owners} if before is not None else set()
        pairs = [(item, owner) for owner in item.owners if owner.uid not in known]
        if before is None:
            found = self._dependents.get(uid, {}).items()
            pairs += [(self.items[other], owner) for other, owners in found for owner in owners]
        return [(dependent, owner) for dependent, owner in pairs if self._astray(dependent, owner)]

    def _astray(self, dependent: Item, owner: Owner) -> bool:
        seen = self.items.get(owner.uid)
        return seen is not None and seen.resource.namespaced and seen.namespace != dependent.namespace

    def remove(self, uid: str) -> set[str]:
        """Take an object out; return the UIDs to look at: its dependents, and its owners, who may wait for it."""
        item = self.items.pop(uid, None)
        self.items = shrunk(self.items)
        if item is None:
            return set()
        for owner in item.owners:
            self._unlink(owner.uid, uid)
        look = set(self._dependents.get(uid, ()))
        look |= {owner.uid for owner in item.owners}
        return {found for found in look if found in self.items}

    def _unlink(self, owner: str, dependent: str) -> None:
        members = self._dependents.get(owner)
        if members is not None:
            members.pop(dependent, None)
            if not members:
                del self._dependents[owner]


def _by_uid(owners: Iterable[Owner]) -> dict[str, tuple[Owner, ...]]:
    """Return references by their owner's UID, which several may name."""
    found: dict[str, list[Owner]] = {}
    for owner in owners:
        found.setdefault(owner.uid, []).append(owner)
    return {uid: tuple(refs) for uid, refs in found.items()}


def _blocks(refs: Iterable[Owner]) -> bool:
    return any(ref.block_owner_deletion for ref in refs)
