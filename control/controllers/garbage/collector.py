"""Garbage collection: an object whose owners are all gone is deleted; deletion may wait for dependents, or let them be.

The graph is fed by informers of all resources. An owner that is in the graph exists; one that is not is requested live
before anything is done, since our copy may be behind (and a reference may lie about its coordinates).
A resource that cannot be listed (its conversion webhook is dead, its definition is being deleted) blocks nothing but its own
objects: the first list of all is waited for, but no longer than upstream does.
Upstream: pkg/controller/garbagecollector.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from control.controllers.concurrent_requests import for_each
from control.controllers.context import Context
from control.controllers.discovery import DiscoveredResource
from control.controllers.garbage.graph import FOREGROUND, ORPHAN, Graph, Item, parts
from control.controllers.garbage.item_requests import ItemRequests
from control.controllers.garbage.large_changes import LargeChanges
from control.controllers.garbage.metadata import Owner
from control.controllers.garbage.owner_states import GONE, SOLID, WAITING, OwnerStates
from control.controllers.garbage.resource_monitors import ResourceMonitors
from kube import cancellation
from kube.api import apiextensions_v1, core_v1
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change, Informer, wait_listed

log = logging.getLogger(__name__)

MOST_OWNERS = 5
"""Owners that an entry of the journal names."""
REDISCOVER_SECONDS = 60.0
"""For aggregated APIs; custom resources are noticed when their definition changes."""
SYNC_SECONDS = 30.0
"""Time that the first lists may take before collection starts without the missing ones (upstream: initialSyncTimeout)."""


class GarbageCollector:
    """Follows everything that can be listed, watched and deleted. Keys are UIDs."""

    def __init__(self, context: Context) -> None:
        self._context, self._clock = context, context.clock
        self._recorder = context.recorder("garbage-collector-controller")
        self.graph = Graph()
        self._requests = ItemRequests(context.client)
        self._monitors = ResourceMonitors(context, self._changed, self._forget)
        self._owner_states = OwnerStates(self.graph, self._requests, self._monitors)
        self._large = LargeChanges(self._apply)
        self.controller = Controller(
            "garbage collector",
            self.reconcile,
            workers=16,
            queue="garbage_collector_attempt_to_delete",
            clock=context.clock,
            owner=self._namespace_of,
        )
        definitions = context.informers.of(apiextensions_v1.CustomResourceDefinition)
        definitions.subscribe(lambda change: self._monitors.rediscover.set())

    def _namespace_of(self, uid: str) -> str:
        """Return the namespace of an object, or its UID where it has none or is gone."""
        item = self.graph.items.get(uid)
        return (item.namespace if item is not None else "") or uid

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self._wait_synced(await self._monitors.update(group))
            await self._large.apply_all()
            cancellation.start(group, self._large.run, "garbage collector large changes")
            cancellation.start(group, lambda: self._follow_discovery(group), "garbage collector discovery")
            cancellation.start(group, self.controller.run, "garbage collector workers")

    # -- monitoring -------------------------------------------------------------------------------------------------
    async def _follow_discovery(self, group: asyncio.TaskGroup) -> None:
        while True:
            timer = asyncio.ensure_future(self._clock.sleep_deferrable(REDISCOVER_SECONDS))
            rediscovery = asyncio.ensure_future(self._monitors.rediscover.wait())
            try:
                await asyncio.wait((timer, rediscovery), return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
                rediscovery.cancel()
            self._monitors.rediscover.clear()
            # Their keys lie among what a load has taken: kept for ever, they would keep most of its memory.
            self._owner_states.forget_absent()
            try:
                await self._monitors.update(group)
            except StatusError as error:
                log.warning("garbage collector: discovery: %s", error)

    async def _wait_synced(self, informers: Mapping[str, Informer[Any]]) -> None:
        """Wait for first lists, and log the missing ones after a timeout."""
        late = await wait_listed(informers.values(), self._clock, SYNC_SECONDS)
        missing = [target for target, informer in informers.items() if informer in late]
        if missing:
            log.warning("garbage collection starts without kinds that cannot be listed: %s", ", ".join(sorted(missing)))

    def _forget(self, target: tuple[str, str]) -> None:
        """Remove the objects of a resource that the server no longer has."""
        for item in [i for i in self.graph.items.values() if (i.resource.group, i.resource.plural) == target]:
            if not self._large.has(item.uid):  # else it is removed when its change is applied
                self._enqueue_items(self.graph.remove(item.uid))

    def _changed(self, resource: DiscoveredResource, change: Change[Any]) -> None:
        metadata, uid = change.new.metadata, change.new.metadata.uid or ""
        if self._large.concerns(uid, change):
            self._large.put(uid, resource, change)
            return
        if change.type == "MODIFIED" and change.old is not None and _same(change.old.metadata, metadata):
            if (item := self.graph.items.get(uid)) is not None:
                item.revision = metadata.resource_version or ""
            return
        for _ in self._apply(resource, change):
            pass

    def _apply(self, resource: DiscoveredResource, change: Change[Any]) -> Iterator[None]:
        """Change the graph, in parts."""
        metadata, uid = change.new.metadata, change.new.metadata.uid or ""
        if change.type == "DELETED":
            yield from self._remove(uid)
            self._context.departed(metadata.namespace or "")
            return
        owners: list[Owner] = []
        if metadata.owner_references:
            for part in parts(metadata.owner_references):
                owners += map(_owner, part)
                yield
        item = Item(
            resource,
            metadata.namespace or "",
            metadata.name or "",
            uid,
            metadata.resource_version or "",
            tuple(owners),
            tuple(metadata.finalizers),
            metadata.deletion_timestamp is not None,
        )
        before = self.graph.items.get(uid)
        for look in self.graph.put_in_parts(item):
            self._enqueue_items(look)
            yield
        for pairs in self.graph.strays_in_parts(uid, before):
            for dependent, owner in pairs:
                self._tell_astray(dependent, owner)
            yield
        if (resource.group, resource.plural) not in self._monitors.monitored:  # since the parts began, perhaps
            yield from self._remove(uid)

    def _remove(self, uid: str) -> Iterator[None]:
        for look in self.graph.remove_in_parts(uid):
            self._enqueue_items(look)
            yield

    def _tell_astray(self, dependent: Item, owner: Owner) -> None:
        """Warn of an owner reference that leads into another namespace."""
        where = (
            f"{owner.api_version}/{owner.kind}, namespace: {dependent.namespace}, name: {owner.name}, uid: {owner.uid}"
        )
        text = f'ownerRef [{where}] does not exist in namespace "{dependent.namespace}"'
        self._recorder.event(_reference(dependent), "Warning", "OwnerRefInvalidNamespace", text)

    def _record(self, item: Item, decision: str, owners: Sequence[Owner]) -> None:
        """Record the deletion of an object in the journal."""
        named = ", ".join(f"{owner.kind.lower()}/{owner.name}" for owner in owners[:MOST_OWNERS])
        self._recorder.decisions.record(_reference(item), f"{decision}: {named}")

    def _enqueue_items(self, uids: Set[str]) -> None:
        for uid in uids:
            self.controller.enqueue(uid)

    # -- reconciling ------------------------------------------------------------------------------------------------
    async def reconcile(self, uid: str) -> float | None:
        """Decide about one object."""
        item = self.graph.items.get(uid)
        if item is None:
            return None
        if item.orphans_dependents:
            await self._orphan_dependents(item)
            return None
        if item.waits_for_dependents:
            await self._finish_foreground(item)
            return None
        if item.deleting or not item.owners:
            return None
        states = await self._owner_states.of(item)
        solid = [owner for owner, state in states.items() if state == SOLID]
        waiting = [owner for owner, state in states.items() if state == WAITING]
        dangling = [owner for owner, state in states.items() if state == GONE]
        if solid:
            if dangling or waiting:
                await self._requests.drop_owners(item, {owner.uid for owner in dangling + waiting})
            return None
        if waiting and (dependents := self.graph.dependents(uid)):
            for dependent in dependents:
                if dependent.waits_for_dependents:  # a circle, in which everybody would wait for ever
                    await self._requests.unblock(item)
                    break
            await self._requests.delete(item, "Foreground")
            self._record(item, "deletes it with its dependents, because its owner is deleted so", waiting)
        else:
            policy = "Orphan" if ORPHAN in item.finalizers else "Foreground" if FOREGROUND in item.finalizers else ""
            await self._requests.delete(item, policy or "Background")
            self._record(item, "deletes it, because no owner is left", dangling + waiting)
        return None

    async def _finish_foreground(self, item: Item) -> None:
        """Let an owner go once no dependent blocks it; else see to it that those are deleted."""
        blocking = self.graph.blocking(item.uid)
        if not blocking:
            await self._requests.drop_finalizer(item, FOREGROUND)
            return
        for dependent in blocking:
            if not dependent.waits_for_dependents:
                self.controller.enqueue(dependent.uid)

    async def _orphan_dependents(self, item: Item) -> None:
        dependents = self.graph.dependents(item.uid)
        failure = await for_each(dependents, lambda dependent: self._requests.drop_owners(dependent, {item.uid}))
        if failure is not None:
            raise failure
        await self._requests.drop_finalizer(item, ORPHAN)


def _reference(item: Item) -> core_v1.ObjectReference:
    return core_v1.ObjectReference(
        api_version=item.resource.api_version,
        kind=item.resource.kind,
        namespace=item.namespace or None,
        name=item.name,
        uid=item.uid,
    )


def _same(old: Any, new: Any) -> bool:
    """True if a change of metadata means nothing to the graph."""
    return (old.owner_references, old.finalizers, old.deletion_timestamp) == (
        new.owner_references,
        new.finalizers,
        new.deletion_timestamp,
    )


def _owner(ref: Any) -> Owner:
    if isinstance(ref, Owner):
        return ref
    return Owner(ref.api_version, ref.kind, ref.name, ref.uid, ref.block_owner_deletion, ref.controller)
