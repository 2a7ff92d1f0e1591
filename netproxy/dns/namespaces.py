"""Follows namespaces for DNS: a name below an existing one has no records, below another it is NXDOMAIN.

Upstream's role for proxies may not list namespaces. Where the server refuses, DNS goes by the Services that it knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.informer import Informer
from netproxy.slim_objects import SlimNamespace

log = logging.getLogger(__name__)
RETRY = 5.0
"""Seconds before the next attempt to list namespaces after a denial."""


class Namespaces:
    """Follows the namespaces' names, where that is allowed."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._informer = Informer(client, SlimNamespace, clock=clock)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever a namespace comes or goes."""
        self._informer.subscribe(lambda change: changed() if change.type != "MODIFIED" else None)

    def known(self, name: str) -> bool | None:
        """Return whether a namespace exists; None if that is not known."""
        return self._informer.get(name) is not None if self._informer.synced else None

    async def run(self) -> None:
        """Follow until cancelled; return where it is not allowed."""
        while True:
            try:
                await self._client.list(SlimNamespace, limit=1)
                break
            except StatusError as error:
                if error.code == 403:
                    log.info("namespaces may not be listed: cluster DNS knows those that have Services")
                    return
            await self._clock.sleep(RETRY)
        await self._informer.run()
