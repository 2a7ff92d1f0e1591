"""Follows namespaces for DNS: a name below an existing one has no records, below another it is NXDOMAIN.

Upstream's role for proxies may not list namespaces. While the server refuses, DNS goes by the Services that it
knows; the informer tries again, since the permission may be granted later.
"""

from __future__ import annotations

from collections.abc import Callable

from kube.client import Client
from kube.clock import Clock
from kube.daemon_roles import NETWORK_POLICY
from kube.informer import Informer
from netproxy.slim_objects import SlimNamespace


class Namespaces:
    """Follows the namespaces' names, where that is allowed."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._informer = Informer(client, SlimNamespace, granted_by=NETWORK_POLICY, clock=clock)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a namespace comes or goes."""
        self._informer.subscribe(lambda change: changed() if change.type != "MODIFIED" else None)

    def known(self, name: str) -> bool | None:
        """Return whether a namespace exists; None if that is not known."""
        return self._informer.get(name) is not None if self._informer.synced else None

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._informer.run()
