"""Shared informers: one informer a kind, however many controllers and plugins use it.

The control plane holds one copy of each kind. A controller requests informers in its constructor and works once those have
their first list; a kind that cannot be listed blocks no other controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import msgspec

from kube.api import apiextensions_v1, autoscaling_v2, batch_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.gateway import objects as gateway_objects
from kube.informer import Informer, wait_listed
from kube.loops import Loops

log = logging.getLogger(__name__)
T = TypeVar("T", bound=msgspec.Struct)
QUIET_SECONDS = 30.0
"""Time that first lists may take before the log names those that are missing."""

SKIPPED_IF_UNREADABLE: tuple[type[msgspec.Struct], ...] = (
    autoscaling_v2.HorizontalPodAutoscaler,
    batch_v1.CronJob,
    apiextensions_v1.CustomResourceDefinition,
    *gateway_objects.KINDS,
)
"""Kinds that only their own controller follows, and of which it deletes nothing when one is absent, or what only serves it."""


class SharedInformers:
    """One informer a kind, made when first requested and run from then on."""

    def __init__(self, client: Client, clock: Clock = SYSTEM) -> None:
        self._client, self._clock = client, clock
        self._informers: dict[tuple[type[Any], str, str], Informer[Any]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._requested: list[Informer[Any]] | None = None
        self.loops = Loops(clock)

    def of(self, kind: type[T]) -> Informer[T]:
        """Return the informer of a kind, in all namespaces."""
        return self.filtered(kind)

    def filtered(self, kind: type[T], namespace: str = "", *, field_selector: str = "") -> Informer[T]:
        """Return the informer of those objects of a kind that are in a namespace or have a field."""
        key = (kind, namespace, field_selector)
        found: Informer[T] | None = self._informers.get(key)
        if found is None:
            found = Informer(
                self._client,
                kind,
                namespace,
                field_selector=field_selector,
                skip_unreadable=kind in SKIPPED_IF_UNREADABLE,
                clock=self._clock,
            )
            self._informers[key] = found
            if self._group is not None:
                self._start(self._group, key, found)
        if self._requested is not None:
            self._requested.append(found)
        return found

    def optional(self, kind: type[T]) -> Informer[T]:
        """Return the informer of a kind, in all namespaces, whose first list the controller does not wait for."""
        requested, self._requested = self._requested, None
        try:
            return self.of(kind)
        finally:
            self._requested = requested

    @contextlib.contextmanager
    def requested(self) -> Iterator[list[Informer[Any]]]:
        """Record in the list, until the end of the block, the informers that are requested."""
        found: list[Informer[Any]] = []
        self._requested = found
        try:
            yield found
        finally:
            self._requested = None

    def existing(self, kind: type[Any]) -> Informer[Any] | None:
        """Return the informer of a kind in all namespaces, if anybody has requested one."""
        return self._informers.get((kind, "", ""))

    def _start(self, group: asyncio.TaskGroup, key: tuple[type[Any], str, str], informer: Informer[Any]) -> None:
        kind, *selection = key
        name = " ".join(["informer", kind.__name__, *filter(None, selection)])
        group.create_task(self.loops.run(name, informer.run), name=name)

    async def wait_synced(self) -> None:
        """Wait until every informer has its first list."""
        for informer in list(self._informers.values()):
            await informer.wait_synced()

    async def run(self) -> None:
        """Run all informers, also those that are requested later, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for key, informer in self._informers.items():
                    self._start(group, key, informer)
                await asyncio.Event().wait()
        finally:
            self._group = None


async def wait_until_listed(who: str, informers: Collection[Informer[Any]], clock: Clock) -> None:
    """Wait until informers have their first list; a long wait is logged."""
    missing = await wait_listed(informers, clock, QUIET_SECONDS)
    if missing:
        kinds = sorted({informer.kind.__name__ for informer in missing})
        log.warning("the %s waits until %s can be listed", who, ", ".join(kinds))
    for informer in missing:
        await informer.wait_synced()
