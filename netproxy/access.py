"""The way to the API server that a process of this role has: its own, with its certificate renewed, or one lent to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from kube import kubeconfig, servers
from kube.api import discovery_v1
from kube.client import Client
from kube.clock import Clock
from kube.informer import Change
from kube.servers import Servers
from kube.transport import HttpsTransport
from netproxy import own_certificate
from netproxy.config import ProxyConfig
from netproxy.errors import ConfigError


@dataclass(slots=True)
class Access:
    client: Client
    tasks: list[Coroutine[Any, Any, None]] = field(default_factory=list)
    """What has to run meanwhile."""
    changed: Callable[[Change[discovery_v1.EndpointSlice]], None] | None = None
    """What hears of endpoint slices, to learn of other servers."""


@contextlib.asynccontextmanager
async def connected(config: ProxyConfig, client: Client | None, clock: Clock) -> AsyncIterator[Access]:
    """Lend the given client, or one made from the configuration's kubeconfig; ConfigError where it names none."""
    if client is not None:
        yield Access(client)
        return
    if not config.kubeconfig:
        raise ConfigError("clientConnection.kubeconfig: required: it says where the API server is")
    access = kubeconfig.load(config.kubeconfig)
    known = Servers(access.server, servers.beside(config.kubeconfig))
    transport = HttpsTransport(access, "wherry-netproxy", known)
    made = Client(transport)
    renewal = own_certificate.rotation(access, transport, clock)
    try:
        yield Access(made, [] if renewal is None else [renewal.run()], known.changed)
    finally:
        await made.close()
