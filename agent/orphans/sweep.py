"""Removes orphans when the agent starts and once a minute; each removal is logged and counted.

containerd's CRI lists a sandbox only after it has started, and forgets a sandbox whose container is removed although its shim
still runs (seen with containerd 1.6; containerd/containerd#6860, #10421). Nothing else removes what it created before: shims
and their bundles, network namespaces, addresses, leases that hold snapshots for a day, and containers whose state on disk
CRI could not read when it started, or that it could not delete after their creation had failed. The machine is read before
the owners, so that a resource created in between is not taken for an orphan.
"""

from __future__ import annotations

import asyncio
import logging

from agent import complete_lists
from agent.config import OwnContainerd
from agent.metrics.counters import Counter
from agent.orphans import cni, machine, removal, rules
from agent.orphans.machine import ADDRESS, BUNDLE, CONTAINER, LEASE, NETNS, SHIM, Daemon, Item
from agent.orphans.rules import Owners
from cri.client import Client
from cri.containerd_service import ContainerRecord
from cri.errors import CRIError, MessageTooLargeError, NotFoundError
from kube.clock import Clock

log = logging.getLogger(__name__)

PERIOD_SECONDS = 60.0
_ORDER = (SHIM, BUNDLE, NETNS, ADDRESS, CONTAINER, LEASE)
"""The order of removal: a shim would use its bundle again, CNI DEL of an address needs the network namespace, and a bundle
has its container's snapshot mounted."""


class Sweep:
    """Sweeps for one containerd; `request_timeout` is that of the agent's CRI calls, in seconds."""

    def __init__(
        self, of: OwnContainerd, client: Client, request_timeout: float, *, clock: Clock, removed: Counter
    ) -> None:
        self._of, self._client, self._clock, self._removed = of, client, clock, removed
        self._looks = rules.sweeps_needed(request_timeout, PERIOD_SECONDS)
        self._seen: dict[Item, int] = {}

    async def run(self) -> None:
        """Sweep until cancelled; a sweep that fails is retried after PERIOD_SECONDS."""
        while True:
            try:
                await self.sweep()
            except (CRIError, OSError) as error:
                log.warning("scanning for orphans of containerd: %s", error)
            await self._clock.sleep(PERIOD_SECONDS)

    async def sweep(self) -> None:
        """Remove the orphans found now. Raises CRIError, OSError if resources or owners cannot be read."""
        by = await asyncio.to_thread(machine.daemon, self._of.socket)
        items = await asyncio.to_thread(machine.scan, self._of, by)
        leases, containers = await self._client.containerd.leases(), await self._unknown_containers()
        items += [Item(LEASE, lease.id, lease.created) for lease in leases if lease.expires]
        items += [Item(CONTAINER, each.id, each.created, each.id) for each in containers if each.by_cri]
        others = {each.id for each in containers if not each.by_cri}
        self._seen = rules.seen_again(rules.ownerless(items, await self._owners(items, others)), self._seen)
        found = rules.abandoned(self._seen, by.began, self._looks)
        if await asyncio.to_thread(machine.daemon, self._of.socket) != by:
            return  # the answer may be another process' than the one whose age is known
        for item in sorted(found, key=lambda item: _ORDER.index(item.kind)):
            await self._remove(item, by)

    async def _unknown_containers(self) -> list[ContainerRecord]:
        """List the containers in containerd that CRI does not list, those of other clients included."""
        sandboxes, containers = await complete_lists.everything(self._client.runtime)
        known = {sandbox.id for sandbox in sandboxes} | {container.id for container in containers}
        try:
            return await self._client.containerd.containers(known)
        except MessageTooLargeError as error:
            log.warning("leftover containers of containerd are not removed, one is too large: %s", error)
            return await self._client.containerd.containers_of_others()

    async def _owners(self, items: list[Item], others: set[str]) -> Owners:
        sandboxes, containers = await complete_lists.everything(self._client.runtime)
        ids = others | {sandbox.id for sandbox in sandboxes}
        ids |= {id for container in containers for id in (container.id, container.pod_sandbox_id)}
        empty = [item.name for item in items if item.kind == NETNS]
        texts = [await self._info(sandbox.id) for sandbox in sandboxes] if empty else []
        return Owners(frozenset(ids), rules.namespaces_in_use(texts, empty))

    async def _info(self, sandbox_id: str) -> str:
        """Return what CRI knows of a sandbox, as JSON; "" where it has gone meanwhile."""
        try:
            return (await self._client.runtime.pod_sandbox_info(sandbox_id)).get("info", "")
        except NotFoundError:
            return ""

    async def _remove(self, item: Item, by: Daemon) -> None:
        try:
            await self._removal(item, by)
        except (CRIError, *removal.FAILURES) as error:
            log.warning("removing orphaned %s %s (%s): %s", item.kind, item.name, item.owner, error)
            return
        self._seen.pop(item, None)
        self._removed.inc(item.kind)
        log.warning("removed orphaned %s %s (%s)", item.kind, item.name, item.owner)

    async def _removal(self, item: Item, by: Daemon) -> None:
        of = self._of
        match item.kind:
            case machine.SHIM:
                await removal.end_shim(of, by, item)
                await removal.remove_container(of, item.owner)
            case machine.BUNDLE:
                await removal.remove_container(of, item.owner)
            case machine.NETNS:
                await removal.remove_namespace(of, item)
            case machine.ADDRESS:
                await cni.delete(of, item.owner)
            case machine.CONTAINER:
                found = await self._client.containerd.container(item.name)
                if found is not None and found.created == item.born:
                    await self._client.containerd.delete_container(found)
            case machine.LEASE:
                await self._client.containerd.delete_lease(item.name)
