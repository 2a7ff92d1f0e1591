"""Reports a simulated node to the API server: registers it, reports its status, renews its lease, and sends events."""

from __future__ import annotations

import asyncio

import msgspec

from kube.api import coordination_v1, core_v1
from kube.client import STRATEGIC, Client
from kube.clock import Clock, format_micro_time
from kube.errors import StatusError
from kube.events import EventRecorder
from kube.journal import Journal
from wherry.testing.nodes.node import SimulatedNode

LEASES = "kube-node-lease"
LEASE_SECONDS = 40
JOURNAL_BYTES = 256 << 10
STATUS_SECONDS = 300.0
"""Time after which a node reports a status that has not changed, as upstream."""


class NodeReporter:
    """Reports one node, with a client that acts as this node."""

    def __init__(self, node: SimulatedNode, client: Client, clock: Clock) -> None:
        self.node, self.client, self._clock = node, client, clock
        self.journal = Journal(clock, JOURNAL_BYTES)
        self.recorder = EventRecorder(client, "kubelet", clock=clock, host=node.name, journal=self.journal)
        self._sending: asyncio.Task[None] | None = None
        self._reported_at = 0.0

    def start(self, group: asyncio.TaskGroup) -> None:
        """Send events from now on."""
        self._sending = group.create_task(self.recorder.run())

    def stop(self) -> None:
        """Send no more events."""
        if self._sending is not None:
            self._sending.cancel()

    async def register(self) -> None:
        """Create the node's object."""
        await self.client.create(self.node.object())

    async def report(self) -> None:
        """Report the node's status."""
        self._reported_at = self._clock.monotonic()
        status = {"status": self.node.status(self._clock)}
        await self.client.patch(core_v1.Node, self.node.name, "", status, type=STRATEGIC, subresource="status")

    async def renew(self) -> None:
        """Renew the node's lease."""
        name, now = self.node.name, format_micro_time(self._clock.now())
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        try:
            await self.client.patch(coordination_v1.Lease, name, LEASES, {"spec": spec})
        except StatusError as error:
            if not error.not_found:
                raise
            body = {"metadata": {"name": name, "namespace": LEASES}, "spec": spec}
            await self.client.create(msgspec.convert(body, coordination_v1.Lease))

    async def beat(self) -> None:
        """Renew the lease, and report a status that is old."""
        await self.renew()
        if self._clock.monotonic() - self._reported_at >= STATUS_SECONDS:
            await self.report()
