"""The node's gateway in the network role: its process, its sockets, and reports of ports at which it does not serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from kube.clock import Clock
from netproxy import gateway_process
from netproxy.api import Api
from netproxy.config import ProxyConfig
from netproxy.gateway_conflicts import GatewayConflicts
from netproxy.gateway_sockets import GatewaySockets
from netproxy.proxy import ServiceProxy
from netproxy.tasks import Task

log = logging.getLogger(__name__)
END_SECONDS = 5.0
"""Time that the last write of rules has."""


@dataclass(frozen=True, slots=True)
class GatewaySubsystem:
    """The parts, none of them running."""

    config: ProxyConfig
    api: Api
    sockets: GatewaySockets
    conflicts: GatewayConflicts
    clock: Clock

    def tasks(self) -> Iterator[Task]:
        yield from gateway_process.tasks(self.config, self.api, self.sockets, self.clock)
        yield Task("ports of the gateway in use", self.conflicts.run)

    async def end(self, proxy: ServiceProxy) -> None:
        """Take the gateway's ports out of the rules, and then let them become free; both tasks have ended."""
        self.sockets.clear()
        writing = asyncio.create_task(proxy.write_last_changes(), name="last rules of the gateway")
        try:
            await asyncio.wait((writing,), timeout=END_SECONDS)
            if writing.done() and (error := writing.exception()):
                log.error("the last rules of the gateway could not be written", exc_info=error)
        finally:
            writing.cancel()
            self.sockets.close()


def build(config: ProxyConfig, api: Api, clock: Clock) -> GatewaySubsystem:
    """Return the subsystem."""
    conflicts = GatewayConflicts(api.events.gateway_ports_in_use, api.events.gateway_sockets_not_copied, clock)
    sockets = GatewaySockets(conflicts.failed, conflicts.uncopied)
    sockets.subscribe(conflicts.listening)
    return GatewaySubsystem(config, api, sockets, conflicts, clock)
