"""Rule of leases: a leader sends writes only while it has its lease in the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from control.storage.memory import MemoryStore
from control.storage.memory_rows import Row
from simulation.origin import ORIGIN, Origin
from simulation.processes import Process

FOLDER = "/registry/leases/kube-system/"
LEASES = ("kube-controller-manager", "kube-scheduler")
UNFENCED = ("leader-election", "port", "shared-informers")
"""Parts of these daemons that work on every member."""


class Leadership:
    """Holders of the leases of controllers and scheduler, as processes."""

    def __init__(self, store: MemoryStore) -> None:
        self._holders: dict[str, Process | None] = {}
        self._reported: set[tuple[str, str]] = set()
        store.subscribe(self._written)

    def _written(self, row: Row) -> None:
        lease, origin = row.item.key.removeprefix(FOLDER), ORIGIN.get()
        if lease not in LEASES or origin is None:
            return
        spec: dict[str, Any] = {} if row.deleted else msgspec.json.decode(row.item.value)["spec"]
        self._holders[lease] = origin.client if spec.get("holderIdentity") else None

    def sent(self, origin: Origin) -> Iterator[tuple[str, str]]:
        """Check a request that is sent."""
        daemon, _, part = origin.agent.partition("/")
        if origin.method == "GET" or daemon not in LEASES or part.rpartition("/")[2] in UNFENCED:
            return
        holder, client = self._holders.get(daemon), origin.client
        if holder is client or client is None or (daemon, client.name) in self._reported:
            return
        self._reported.add((daemon, client.name))
        leader = holder.name if holder is not None else "nobody"
        yield "fencing", f"{origin.actor} of {client.name} sends {origin.method} {origin.path}: {leader} has {daemon}"
