"""Objects for authentication, the authorizers and admission, from the watch cache.

`StoredObjects` and `Lookup` answer admission's questions; `follow_auth` feeds roles, bindings and pods to the authorizers,
first whole and then change by change.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from control.auth.setup import Auth
from control.custom.definitions import Definitions
from control.event_loop import offload
from control.event_loop.pacing import ServerSlice, TimeSlice
from control.registry import creation, updating
from control.registry.context import SERVER, Context
from control.registry.registry import Registry
from control.storage import codec
from control.storage.entry import Entry
from control.storage.list_watch import list_and_watch
from kube import cancellation
from kube.json_object import Object
from kube.resources import RESOURCES, Resource, by_kind
from kube.selectors import LabelSelector

log = logging.getLogger(__name__)
BY_TARGET: dict[str, Resource] = {}
for _resource in RESOURCES:
    BY_TARGET.setdefault(_resource.target, _resource)


def _folder(resource: Resource, namespace: str) -> str:
    """Return the folder of a namespace's objects in the store, "" for that of all."""
    return f"{resource.storage_prefix}{namespace}/" if namespace and resource.namespaced else ""


class StoredObjects:
    """Objects of built-in kinds by target ("pods", "roles.rbac.authorization.k8s.io"), namespace and name."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def get(self, target: str, namespace: str, name: str) -> Object | None:
        """Return an object from memory, None if it is not there."""
        entry = self.registry.peek(BY_TARGET[target], namespace, name)
        return None if entry is None else entry.obj

    def list(self, target: str, namespace: str = "") -> Iterable[Object]:
        """Return all objects of a namespace ("": of all) from memory."""
        resource = BY_TARGET[target]
        cached = self.registry.cached(resource)
        if cached.is_empty:  # as most kinds are that admission lists for each write
            return ()
        return [entry.obj for entry in cached.list(_folder(resource, namespace)).entries]

    def count(self, target: str, namespace: str) -> int:
        """Return how many objects a namespace has."""
        resource = BY_TARGET[target]
        return self.registry.cached(resource).count(f"{resource.storage_prefix}{namespace}/")

    async def each(self, target: str, namespace: str) -> AsyncGenerator[tuple[Object, int]]:
        """Give the objects of a namespace ("": of all) with their bytes, with turns of others in between."""
        resource = BY_TARGET[target]
        time_slice = TimeSlice()
        for entry in self.registry.cached(resource).list(_folder(resource, namespace)).entries:
            await time_slice.step(len(entry.data))
            yield entry.parts(), len(entry.data)

    async def indexed(self, target: str, namespace: str, value: str) -> AsyncIterator[Object]:
        """Give the objects of a namespace that are indexed by a value, in random order, with turns of others in between."""
        resource = BY_TARGET[target]
        time_slice = TimeSlice()
        entries = list(self.registry.cached(resource).indexed(f"{resource.storage_prefix}{namespace}/", value))
        random.shuffle(entries)
        for entry in entries:
            await time_slice.step(len(entry.data))
            yield entry.parts()

    async def fresh(self, target: str, namespace: str, name: str) -> Object | None:
        """Return an object as of now, also if it was written a moment ago."""
        await self.registry.cache.wait_current()
        return self.get(target, namespace, name)


class Lookup(StoredObjects):
    """Objects of all kinds, custom ones too, and what admission writes."""

    def __init__(self, registry: Registry, custom: Definitions) -> None:
        super().__init__(registry)
        self.custom = custom

    async def select(
        self, user: str, resource: Resource, namespace: str, chosen: str | LabelSelector
    ) -> AsyncIterator[Object]:
        """Give the object of a name, or those of a namespace that a selector matches; custom ones, too.

        Each is decoded when it is requested, a large one at the user's turn.
        """
        await self.custom.ready(resource)
        for entry in await self.registry.strategy(resource).view(await self._chosen(resource, namespace, chosen)):
            yield await offload.run(user, entry.undecoded, _decoded, entry)

    async def _chosen(self, resource: Resource, namespace: str, chosen: str | LabelSelector) -> Sequence[Entry]:
        if isinstance(chosen, str):
            entry = self.registry.peek(resource, namespace, chosen)
            return [] if entry is None else [entry]
        folder = f"{resource.storage_prefix}{namespace}/" if resource.namespaced else ""
        cached, labels = self.registry.cached(resource), chosen
        return (await cached.choose(folder, lambda entry: labels.matches(entry.labels), 0, "", costly=False)).entries

    async def resource_of(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource whose objects are of a kind, custom ones too; None if there is none."""
        resource = by_kind(api_version, kind)
        if resource is None:
            await self.custom.prepare()
            found = (r for r in self.custom.every() if (r.api_version, r.kind) == (api_version, kind))
            return next(found, None)
        return resource

    async def create(self, target: str, obj: Object) -> Object:
        """Create an object as the server itself; raises 409 if it is there."""
        namespace = obj["metadata"].get("namespace", "")
        fresh = codec.decode(codec.encode(obj))
        written = await creation.create(self.registry, Context(SERVER), BY_TARGET[target], namespace, fresh)
        return codec.decode(written.data)

    async def update_status(self, target: str, obj: Object) -> Object:
        """Write an object's status if it is unchanged; raises 409."""
        resource, meta = BY_TARGET[target], obj["metadata"]

        async def change(old: Object | None) -> Object:
            return codec.decode(codec.encode(obj)) | {"metadata": dict(meta)}

        written = await updating.update(
            self.registry,
            Context(SERVER),
            resource,
            meta.get("namespace", ""),
            meta["name"],
            change,
            subresource="status",
        )
        return codec.decode(written.data)


def _decoded(entry: Entry) -> Object:
    return entry.obj


def _read_by_auth(target: str, entry: Entry) -> Object:
    """Return an object for the authorizers: of a large pod only the references are decoded, not its labels or affinity."""
    return entry.parts() if target == "pods" else entry.obj


async def follow_auth(auth: Auth, registry: Registry, started: asyncio.Event) -> None:
    """Keep the authorizers current until cancelled; `started` is set once they know everything there is."""
    async with asyncio.TaskGroup() as group:
        targets = set(auth.follows)
        waiting = len(targets)

        def one_ready() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0:
                started.set()

        group.create_task(auth.rbac.compilation.run(), name="auth-compilation")
        for target in targets:
            work = functools.partial(_follow, auth, registry, target, one_ready)
            cancellation.start(group, work, f"auth-follows-{target}")


async def _follow(auth: Auth, registry: Registry, target: str, ready: Any) -> None:
    cached = registry.cached(BY_TARGET[target])
    waiting = True
    if cached.unreadable:  # the server starts all the same: what is not known allows nothing
        waiting = False
        ready()
    server_slice = ServerSlice()
    async with aclosing(list_and_watch(registry.cache, cached)) as updates:
        async for update in updates:
            server_slice.begin()
            found = []
            for watch_event in update.watch_events:
                await server_slice.step(watch_event.entry.undecoded)
                obj = _read_by_auth(target, watch_event.entry)
                if update.is_list:
                    found.append(obj)
                else:
                    auth.changed(target, watch_event.type, obj)
            if update.is_list:
                auth.replaced(target, found)
            if waiting:
                waiting = False
                await auth.rbac.compilation.settled()
                ready()
