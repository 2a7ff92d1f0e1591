"""Resources of the server by kind, from discovery, which is read again when it is old or lacks a kind."""

from __future__ import annotations

from control.controllers.addons.applyset import GroupKind
from control.controllers.discovery import DiscoveredResource, served
from kube.client import Client
from kube.clock import Clock

FRESH_SECONDS = 30.0
_APPLIED, _PRUNED = {"get", "patch"}, {"delete", "list"}
"""Verbs that a resource must have."""


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

    def pruned(self, kind: GroupKind) -> DiscoveredResource | None:
        """Return the resource that objects of a kind are listed and deleted by, None if there is none."""
        return self._pruned.get(kind)

    def is_stale(self, group: str) -> bool:
        """Return whether the server does not know at the moment what a group has."""
        return group in self._stale
