"""Resources of the server by kind, from discovery, which is read again when it is old or lacks a kind."""

from __future__ import annotations

from collections.abc import Collection

from control.controllers.addons.applyset import EVERY_KIND, GroupKind
from control.controllers.discovery import DiscoveredResource, served
from kube.client import Client
from kube.clock import Clock

FRESH_SECONDS = 30.0
_APPLIED, _PRUNED = {"get", "patch"}, {"delete", "list"}
"""Verbs that a resource must have."""


class StaleGroup(Exception):
    """A kind's group cannot be listed at the moment, so that it is not known whether there are objects of it."""


class Kinds:
    """The kinds that the server had when it was read last."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._read_at = float("-inf")
        self._applied: dict[tuple[str, str], DiscoveredResource] = {}
        """By apiVersion and kind."""
        self._pruned: dict[GroupKind, DiscoveredResource] = {}
        """In the preferred version."""
        self._stale: frozenset[str] = frozenset()

    async def refresh(self, older_than: float = FRESH_SECONDS) -> None:
        """Read discovery if that was so many seconds ago. Raise StatusError."""
        now = self._clock.monotonic()
        if now - self._read_at < older_than:
            return
        found, stale = await served(self._client, every_version=True)
        self._applied, self._pruned = {}, {}
        for each in found:
            if each.verbs >= _APPLIED:
                self._applied.setdefault((each.api_version, each.kind), each)
            if each.verbs >= _PRUNED:
                self._pruned.setdefault(GroupKind.of(each), each)
        self._stale = frozenset(version.rpartition("/")[0] for version in stale)
        self._read_at = now

    def applied(self, api_version: str, kind: str) -> DiscoveredResource | None:
        """Return the resource that objects of a kind are applied to."""
        return self._applied.get((api_version, kind))

    def pruned(self, kinds: Collection[GroupKind]) -> list[DiscoveredResource]:
        """Return the resources that objects of kinds are listed and deleted by. Raise StaleGroup.

        A kind without one has no objects: its definition is gone. With EVERY_KIND all are returned.
        """
        if EVERY_KIND in kinds:
            unknown, kinds = self._stale, self._pruned.keys()
        else:
            unknown = self._stale & {each.group for each in kinds if each not in self._pruned}
        for group in sorted(unknown):
            raise StaleGroup(f"the server of {group} does not answer")
        return [self._pruned[each] for each in sorted(kinds) if each in self._pruned]
