"""Garbage collection: an object whose owners are all gone is deleted; deletion may wait for dependents, or let them be.

The graph is fed by informers of all resources. An owner that is in the graph exists; one that is not is asked for live
before anything is done, since our copy may be behind (and a reference may lie about its coordinates).
A resource that cannot be listed (its conversion webhook is dead, its definition is being deleted) blocks nothing but its own
objects: the first list of all is waited for, but no longer than upstream does.
Upstream: pkg/controller/garbagecollector.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from control.controllers.at_once import for_each
from control.controllers.context import Context
from control.controllers.discovery import Served, served
from control.controllers.garbage.graph import FOREGROUND, ORPHAN, Graph, Item
from control.controllers.garbage.metadata import MetadataClient, Owner, Partial
from control.controllers.turns import REQUEST_STEPS, Turn
from kube import resources
from kube.api import apiextensions_v1, core_v1
from kube.client import MERGE
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change, Informer, wait_listed

log = logging.getLogger(__name__)

IGNORED = {("", "events"), ("events.k8s.io", "events")}
REDISCOVER_SECONDS = 60.0
"""For aggregated APIs; custom resources are noticed when their definition changes."""
SYNC_SECONDS = 30.0
"""Time that the first lists may take before collection starts without the missing ones (upstream: initialSyncTimeout)."""
MOST_ABSENT = 500
GONE, SOLID, WAITING = "gone", "solid", "waiting"


class GarbageCollector:
    """Follows everything that can be listed, watched and deleted. Keys are UIDs."""

    def __init__(self, context: Context) -> None:
        self._context, self._client, self._clock = context, context.client, context.clock
        self._recorder = context.recorder("garbage-collector-controller")
        self.graph = Graph()
        self._absent: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._kinds: dict[tuple[str, str], Served] = {}
        self._monitored: dict[tuple[str, str], asyncio.Task[None] | None] = {}
        self._rediscover = asyncio.Event()
        self.controller = Controller("garbage collector", self.reconcile, workers=16, clock=context.clock)
        definitions = context.informers.of(apiextensions_v1.CustomResourceDefinition)
        definitions.subscribe(lambda change: self._rediscover.set())

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self._wait_synced(await self._monitor_all(group))
            group.create_task(self._follow_discovery(group), name="garbage collector discovery")
            group.create_task(self.controller.run(), name="garbage collector workers")

    # -- monitoring -------------------------------------------------------------------------------------------------
    async def _follow_discovery(self, group: asyncio.TaskGroup) -> None:
        while True:
            timer = asyncio.ensure_future(self._clock.sleep(REDISCOVER_SECONDS))
            news = asyncio.ensure_future(self._rediscover.wait())
            try:
                await asyncio.wait((timer, news), return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
                news.cancel()
            self._rediscover.clear()
            # Their keys lie among what a load has taken: kept for ever, they would keep most of its memory.
            self._absent.clear()
            try:
                await self._monitor_all(group)
            except StatusError as error:
                log.warning("garbage collector: discovery: %s", error)

    async def _wait_synced(self, informers: Mapping[str, Informer[Any]]) -> None:
        """Wait for first lists, and after a limit say which are missing."""
        late = await wait_listed(informers.values(), self._clock, SYNC_SECONDS)
        missing = [target for target, informer in informers.items() if informer in late]
        if missing:
            log.warning("garbage collection begins without what cannot be listed: %s", ", ".join(sorted(missing)))

    async def _monitor_all(self, group: asyncio.TaskGroup) -> dict[str, Informer[Any]]:
        """Follow every resource that the server has now, forget those that it no longer has; return the new informers."""
        try:
            found, _ = await served(self._client)
        except StatusError as error:
            log.warning("garbage collector: discovery: %s", error)
            self._rediscover.set()
            await self._clock.sleep(1)
            return {}
        wanted = {
            (r.group, r.plural): r
            for r in found
            if {"list", "watch", "delete"} <= r.verbs and (r.group, r.plural) not in IGNORED
        }
        self._kinds = {(r.group, r.kind): r for r in wanted.values()}
        for key in self._monitored.keys() - wanted.keys():
            task = self._monitored.pop(key)
            if task is not None:
                task.cancel()
            for item in [i for i in self.graph.items.values() if (i.resource.group, i.resource.plural) == key]:
                self._look(self.graph.remove(item.uid))
        new = wanted.keys() - self._monitored.keys()
        return {wanted[key].target: self._monitor(group, key, wanted[key]) for key in new}

    def _monitor(self, group: asyncio.TaskGroup, key: tuple[str, str], resource: Served) -> Informer[Any]:
        known = resources.by_path(resource.group, resource.version, resource.plural)
        informer = self._context.informers.existing(known.type) if known is not None else None
        if informer is None:
            informer = Informer(MetadataClient(self._client, resource), Partial, clock=self._clock)
            task = group.create_task(informer.run(), name=f"metadata of {resource.target}")
            self._monitored[key] = task
        else:
            self._monitored[key] = None
        informer.subscribe(lambda change: self._changed(resource, change))
        return informer

    def _changed(self, resource: Served, change: Change[Any]) -> None:
        metadata = change.new.metadata
        uid = metadata.uid or ""
        if change.type == "DELETED":
            self._look(self.graph.remove(uid))
            self._context.departed(metadata.namespace or "")
            return
        if change.old is not None:
            old = change.old.metadata
            if (old.owner_references, old.finalizers, old.deletion_timestamp) == (
                metadata.owner_references,
                metadata.finalizers,
                metadata.deletion_timestamp,
            ):
                if (item := self.graph.items.get(uid)) is not None:
                    item.revision = metadata.resource_version or ""
                return
        owners = tuple(
            ref
            if isinstance(ref, Owner)
            else Owner(ref.api_version, ref.kind, ref.name, ref.uid, ref.block_owner_deletion, ref.controller)
            for ref in metadata.owner_references
        )
        item = Item(
            resource,
            metadata.namespace or "",
            metadata.name or "",
            uid,
            metadata.resource_version or "",
            owners,
            tuple(metadata.finalizers),
            metadata.deletion_timestamp is not None,
        )
        before = self.graph.items.get(uid)
        self._look(self.graph.put(item))
        for dependent, owner in self.graph.strays(uid, before):
            self._tell_astray(dependent, owner)

    def _tell_astray(self, dependent: Item, owner: Owner) -> None:
        """Warn of an owner reference that leads into another namespace."""
        about = core_v1.ObjectReference(
            api_version=dependent.resource.api_version,
            kind=dependent.resource.kind,
            namespace=dependent.namespace or None,
            name=dependent.name,
            uid=dependent.uid,
        )
        where = (
            f"{owner.api_version}/{owner.kind}, namespace: {dependent.namespace}, name: {owner.name}, uid: {owner.uid}"
        )
        text = f'ownerRef [{where}] does not exist in namespace "{dependent.namespace}"'
        self._recorder.event(about, "Warning", "OwnerRefInvalidNamespace", text)

    def _look(self, uids: set[str]) -> None:
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
        states = await self._states(item)
        solid = [owner for owner, state in states.items() if state == SOLID]
        waiting = [owner for owner, state in states.items() if state == WAITING]
        dangling = [owner for owner, state in states.items() if state == GONE]
        if solid:
            if dangling or waiting:
                await self._drop_owners(item, {owner.uid for owner in dangling + waiting})
            return None
        if waiting and self.graph.has_dependents(uid):
            for dependent in self.graph.dependents(uid):
                if dependent.waits_for_dependents:  # a circle, in which everybody would wait for ever
                    await self._unblock(item)
                    break
            await self._delete(item, "Foreground")
        else:
            policy = "Orphan" if ORPHAN in item.finalizers else "Foreground" if FOREGROUND in item.finalizers else ""
            await self._delete(item, policy or "Background")
        return None

    async def _states(self, item: Item) -> dict[Owner, str]:
        """Return of each owner whether it is there, is waiting for its dependents to go, or is gone."""
        asked: dict[tuple[str, str, str], Partial | None] = {}
        turn, states = Turn(), dict[Owner, str]()
        for owner in item.owners:
            before = len(asked)
            states[owner] = await self._state(item, owner, asked)
            await turn.took(1 + REQUEST_STEPS * (len(asked) - before))
        return states

    async def _state(self, item: Item, owner: Owner, asked: dict[tuple[str, str, str], Partial | None]) -> str:
        """Return an owner's state; `asked` keeps the answers to live look-ups, of which there is one for each name."""
        known = self.graph.items.get(owner.uid)
        if known is not None and known.answers_to(owner, item.namespace):
            return WAITING if known.waits_for_dependents else SOLID
        resource = self._kinds.get((owner.api_version.rpartition("/")[0], owner.kind))
        if resource is None or (resource.namespaced and not item.namespace):
            return SOLID  # nobody can tell: an unknown kind, or a reference that may not be
        namespace = item.namespace if resource.namespaced else ""
        key = (resource.target, namespace, owner.name, owner.uid)
        if key in self._absent:
            return GONE
        place = resource.target, namespace, owner.name
        if place not in asked:
            asked[place] = await self._found(resource, namespace, owner.name)
        live = asked[place]
        if live is None or live.metadata.uid != owner.uid:
            self._absent[key] = None
            if len(self._absent) > MOST_ABSENT:
                self._absent.popitem(last=False)
            return GONE
        return WAITING if live.metadata.deletion_timestamp and FOREGROUND in live.metadata.finalizers else SOLID

    async def _finish_foreground(self, item: Item) -> None:
        """Let an owner go once no dependent blocks it; else see to it that those are deleted."""
        blocking = self.graph.blocking(item.uid)
        if not blocking:
            await self._drop_finalizer(item, FOREGROUND)
            return
        for dependent in blocking:
            if not dependent.waits_for_dependents:
                self.controller.enqueue(dependent.uid)

    async def _orphan_dependents(self, item: Item) -> None:
        dependents = self.graph.dependents(item.uid)
        failure = await for_each(dependents, lambda dependent: self._drop_owners(dependent, {item.uid}))
        if failure is not None:
            raise failure
        await self._drop_finalizer(item, ORPHAN)

    # -- writing ----------------------------------------------------------------------------------------------------
    async def _found(self, resource: Served, namespace: str, name: str) -> Partial | None:
        """Ask for an object; return None where it is not found."""
        try:
            data = await self._client.call("GET", resource.path(namespace, name))
        except StatusError as error:
            if error.not_found:
                return None
            raise
        return msgspec.json.decode(data, type=Partial)

    async def _live(self, item: Item) -> Partial | None:
        """Return the object as it is now; None where it is gone or another has its name."""
        live = await self._found(item.resource, item.namespace, item.name)
        return live if live is not None and live.metadata.uid == item.uid else None

    async def _patch(self, item: Item, live: Partial, metadata: dict[str, Any]) -> None:
        """Change an object's metadata, if nobody else has changed it since."""
        patch = {"metadata": {"uid": item.uid, "resourceVersion": live.metadata.resource_version, **metadata}}
        path = item.resource.path(item.namespace, item.name)
        await self._client.call("PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE)

    async def _drop_owners(self, item: Item, uids: set[str]) -> None:
        live = await self._live(item)
        if live is None:
            return
        kept = [owner for owner in live.metadata.owner_references if owner.uid not in uids]
        if len(kept) != len(live.metadata.owner_references):
            await self._patch(item, live, {"ownerReferences": _plain(kept)})

    async def _unblock(self, item: Item) -> None:
        live = await self._live(item)
        if live is not None:
            free = [
                msgspec.structs.replace(owner, block_owner_deletion=False) for owner in live.metadata.owner_references
            ]
            await self._patch(item, live, {"ownerReferences": _plain(free)})

    async def _drop_finalizer(self, item: Item, finalizer: str) -> None:
        live = await self._live(item)
        if live is not None and finalizer in live.metadata.finalizers:
            kept = [name for name in live.metadata.finalizers if name != finalizer]
            await self._patch(item, live, {"finalizers": kept or None})

    async def _delete(self, item: Item, policy: str) -> None:
        """Delete an object if it is still the one, in the state, that was judged."""
        live = await self._live(item)
        if live is None or live.metadata.deletion_timestamp is not None:
            return
        if {owner.uid for owner in live.metadata.owner_references} != {owner.uid for owner in item.owners}:
            return  # its owners changed: the watch will deliver the change, which causes another check
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": policy,
            "preconditions": {"uid": item.uid, "resourceVersion": live.metadata.resource_version},
        }
        try:
            path = item.resource.path(item.namespace, item.name)
            await self._client.call("DELETE", path, body=msgspec.json.encode(options))
        except StatusError as error:
            if not error.not_found:
                raise


def _plain(owners: list[Owner]) -> list[dict[str, Any]] | None:
    plain: list[dict[str, Any]] = [
        {k: v for k, v in msgspec.to_builtins(owner).items() if v is not None} for owner in owners
    ]
    return plain or None
