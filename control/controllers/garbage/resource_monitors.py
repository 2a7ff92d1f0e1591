"""Informers of every resource that can be listed, watched and deleted, as discovery shows them.

The informer of another controller is used if there is one; of all other resources only the metadata are kept.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable
from typing import Any

from control.controllers.context import Context
from control.controllers.discovery import DiscoveredResource, served
from control.controllers.garbage.metadata import MetadataClient, Partial
from kube import cancellation, resources
from kube.errors import StatusError
from kube.informer import Change, Informer

log = logging.getLogger(__name__)

IGNORED = {("", "events"), ("events.k8s.io", "events")}
LISTS_AT_ONCE = 4
"""Lists of a group version that are under way: each is in memory as a whole."""
FAILED_SECONDS = 30.0
"""Time before a resource is followed again after an unexpected error."""


class ResourceMonitors:
    """The followed resources. `changed` handles a change of an object, `gone` a resource that is no longer served."""

    def __init__(
        self,
        context: Context,
        changed: Callable[[DiscoveredResource, Change[Any]], None],
        gone: Callable[[tuple[str, str]], None],
    ) -> None:
        self._context, self._client, self._clock = context, context.client, context.clock
        self._changed, self._gone = changed, gone
        self.kinds: dict[tuple[str, str], DiscoveredResource] = {}
        """The followed resources by group and kind."""
        self.monitored: dict[tuple[str, str], asyncio.Task[None] | None] = {}
        """The tasks of the collector's own informers, by group and plural; None for an informer of another controller."""
        self._listing: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()
        self.rediscover = asyncio.Event()
        """Set when discovery has to be read again at once."""

    async def update(self, group: asyncio.TaskGroup) -> dict[str, Informer[Any]]:
        """Follow every resource that the server has now, forget those that it no longer has; return the new informers."""
        try:
            found, _ = await served(self._client)
        except StatusError as error:
            log.warning("garbage collector: discovery: %s", error)
            self.rediscover.set()
            await self._clock.sleep(1)
            return {}
        wanted = {
            (r.group, r.plural): r
            for r in found
            if {"list", "watch", "delete"} <= r.verbs and (r.group, r.plural) not in IGNORED
        }
        self.kinds = {(r.group, r.kind): r for r in wanted.values()}
        for key in self.monitored.keys() - wanted.keys():
            task = self.monitored.pop(key)
            if task is not None:
                task.cancel()
            self._gone(key)
        new = wanted.keys() - self.monitored.keys()
        return {wanted[key].target: self._monitor(group, key, wanted[key]) for key in new}

    def _monitor(self, group: asyncio.TaskGroup, key: tuple[str, str], resource: DiscoveredResource) -> Informer[Any]:
        known = resources.by_path(resource.group, resource.version, resource.plural)
        informer = self._context.informers.existing(known.type) if known is not None else None
        if informer is None:
            informer = Informer(
                MetadataClient(self._client, resource, self._places(resource)), Partial, clock=self._clock
            )
            task = group.create_task(self._follow(informer, resource), name=f"metadata of {resource.target}")
            self.monitored[key] = task
        else:
            self.monitored[key] = None
        informer.subscribe(lambda change: self._changed(resource, change))
        return informer

    def _places(self, resource: DiscoveredResource) -> asyncio.Semaphore:
        """Return what the lists of a group version share."""
        return self._listing.setdefault(resource.api_version, asyncio.Semaphore(LISTS_AT_ONCE))

    async def _follow(self, informer: Informer[Any], resource: DiscoveredResource) -> None:
        """Follow a resource until cancelled; an unexpected error concerns this resource alone."""
        while True:
            try:
                await cancellation.as_error(informer.run())
            except Exception:
                log.exception("garbage collector: watching %s failed", resource.target)
            await self._clock.sleep(FAILED_SECONDS)
