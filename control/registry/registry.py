"""Dependencies of the registry's verbs: the store, the watch cache, strategies and caches of resources, admission, the clock.

Reads are methods here. Writes are functions over a `Registry`: `creation.create`, `updating.update` and `deletion.delete`.
What kinds differ in is asked of their `Strategy`. The cache is current when a write's caller continues, so reads see their
own writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from control.registry.context import Admission
from control.registry.served import ServedResource, of_table
from control.registry.strategy import Strategy
from control.registry.strategy_context import Settings
from control.storage.cache import WatchCache
from control.storage.entry import Entry
from control.storage.resource_cache import ResourceCache
from control.storage.store import Store
from kube import errors
from kube.clock import Clock
from kube.journal import Journal
from kube.resources import Resource


class Registry:
    """All resources over one store and one watch cache."""

    def __init__(
        self,
        store: Store,
        cache: WatchCache,
        admission: Admission,
        clock: Clock,
        settings: Settings | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.store, self.cache, self.admission, self.clock = store, cache, admission, clock
        self.settings, self.journal = settings or Settings(), journal
        self.unfinished: set[asyncio.Task[Any]] = set()
        """Writes that are carried out to their end, whatever becomes of their requests."""
        self._served = of_table(self.settings)
        self._by_path = {(r.group, r.version, r.plural): r for r in self._served.values()}
        self._caches: dict[str, ResourceCache] = {}
        self._built_in: frozenset[str] = frozenset()
        for resource in self._served.values():
            if "list" in resource.verbs and resource.plural != "componentstatuses":
                self._add(resource)
        self._built_in = frozenset(self._caches)

    def _add(self, resource: ServedResource) -> None:
        """Register a resource before the cache runs. The first version in the table is the stored one."""
        prefix = resource.storage_prefix
        if prefix not in self._caches:
            strategy = resource.strategy
            cached = self.cache.resource(prefix, resource.kind, resource.api_version, strategy.fields)
            if strategy.index is not None:
                cached.index_by(strategy.index)
            self._caches[prefix] = cached

    def built_in(self, group: str, version: str, plural: str) -> ServedResource | None:
        """Return the built-in resource of a path, None if there is none."""
        return self._by_path.get((group, version, plural))

    def served(self, resource: Resource) -> ServedResource:
        """Return a resource as this server serves it; built-in ones may be given by their rows in the table."""
        return resource if isinstance(resource, ServedResource) else self._served[resource]

    def strategy(self, resource: Resource) -> Strategy:
        """Return the strategy of a resource, one for the server's life (of a custom one: for its definition's)."""
        return (resource if isinstance(resource, ServedResource) else self._served[resource]).strategy

    def cached_at(self, prefix: str) -> ResourceCache | None:
        """Return the watch cache of a place in the store ("/registry/pods/"), None if there is none."""
        return self._caches.get(prefix)

    def cached(self, resource: Resource) -> ResourceCache:
        """Return the watch cache of a resource; raises 404 for a custom one that is gone."""
        found = self._caches.get(resource.storage_prefix)
        if found is None:
            raise errors.path_not_found()
        return found

    def loaded(self, resource: Resource) -> bool:
        """Return whether a custom resource's objects are in the watch cache."""
        return resource.storage_prefix in self._caches

    async def load(self, resource: Resource) -> None:
        """Bring a custom resource's objects into the watch cache."""
        prefix, fields = resource.storage_prefix, self.strategy(resource).fields
        self._caches[prefix] = await self.cache.add_resource(prefix, resource.kind, resource.api_version, fields)

    def renew(self, resource: ServedResource) -> None:
        """Continue with a custom resource's objects under a changed definition; watches end."""
        cached = self._caches.get(resource.storage_prefix)
        if cached is not None and resource.storage_prefix not in self._built_in:
            cached.renew(resource.strategy.fields)

    def drop(self, resource: ServedResource) -> None:
        """Forget a custom resource's objects and end the watches on them; those of built-in ones stay."""
        if resource.storage_prefix in self._built_in:
            return
        if self._caches.pop(resource.storage_prefix, None) is not None:
            self.cache.remove_resource(resource.storage_prefix)

    def caches(self) -> Iterable[ResourceCache]:
        """Return the watch caches of all resources."""
        return self._caches.values()

    # -- reads ----------------------------------------------------------------------------------------------------
    def peek(self, resource: Resource, namespace: str, name: str) -> Entry | None:
        """Return what the cache holds of an object."""
        return self.cached(resource).get(resource.key(namespace, name))

    async def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        """Return an object as of now; raises 404."""
        await self.cache.wait_current()
        entry = self.peek(resource, namespace, name)
        if entry is None:
            raise errors.not_found(resource.group, resource.plural, name)
        strategy = self.strategy(resource)
        return entry if strategy.stored_as_served else (await strategy.view((entry,)))[0]
