"""Which namespaces there are, for DNS: a name below one that exists has no records, below another it does not exist.

Upstream's role for proxies may not list namespaces. Where the server refuses, DNS goes by the Services that it knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.informer import Informer
from netproxy.policy.objects import SlimNamespace

log = logging.getLogger(__name__)
RETRY = 5.0
"""Seconds before another try to ask whether they may be listed."""


class Namespaces:
    """Follows the namespaces' names, where that is allowed; `changed` is called when one comes or goes."""

    def __init__(self, client: Client, clock: Clock, changed: Callable[[], None]) -> None:
        self._client, self._clock = client, clock
        self._informer = Informer(client, SlimNamespace, clock=clock)
        self._informer.subscribe(lambda change: changed() if change.type != "MODIFIED" else None)

    def known(self, name: str) -> bool | None:
        """Tell whether a namespace exists; None where that is not known."""
        return self._informer.get(name) is not None if self._informer.synced else None

    async def run(self) -> None:
        """Follow until cancelled; return where it is not allowed."""
        while True:
            try:
                await self._client.list(SlimNamespace, limit=1)
                break
            except StatusError as error:
                if error.code == 403:
                    log.info("cluster DNS tells namespaces by their Services: they may not be listed")
                    return
            await self._clock.sleep(RETRY)
        await self._informer.run()
