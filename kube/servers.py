"""Addresses of the API servers, and the one in use; transport.py changes it after failures.

A kubeconfig names one server, the preferred one. The others are the endpoints of the Service `kubernetes`, which the servers
keep and clients follow; what was learned is written beside the kubeconfig, so that a client that starts while the
preferred server is away finds the others. A server is left only for one that says it is ready: one that is merely slow is
better than none, and clients that all run from a slow server to the next would bring that down too. Others are tried in
random order, which spreads the clients of a lost server; they come back to the preferred one at moments of their own choice.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from pathlib import Path

from kube import daemon_roles, kubeconfig
from kube.api import discovery_v1
from kube.client import Client
from kube.informer import Change, Informer
from kube.urls import host_port

log = logging.getLogger(__name__)

NAMESPACE, NAME = "default", "kubernetes"
"""The endpoint slice that lists the servers."""

CHECK_SECONDS = 5.0
"""Interval of readiness checks of a server without responses."""
ANSWER_SECONDS = 3.0
"""Timeout of a readiness check."""
RETURN_SECONDS = (30.0, 90.0)
"""A client goes back to the preferred server at a moment between these after it has left it, if that is ready then."""


class Servers:
    """The servers of one cluster, by URL. `remembered` is the file that the others are kept in."""

    def __init__(self, preferred: str, remembered: Path | None = None) -> None:
        self.preferred = self.current = preferred
        self._remembered = remembered
        self._learned: list[str] = _read(remembered) if remembered else []

    @property
    def all(self) -> list[str]:
        """Return every server, the preferred one first."""
        return list(dict.fromkeys((self.preferred, *self._learned)))

    def others(self) -> list[str]:
        """Return the servers that are not in use, in random order."""
        found = [server for server in self.all if server != self.current]
        random.shuffle(found)
        return found

    def use(self, server: str, why: str) -> None:
        log.warning("switching to the API server at %s: %s", server, why)
        self.current = server

    def changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        """Process a change of any endpoint slice; a handler for informers."""
        if change.key == f"{NAMESPACE}/{NAME}" and change.type != "DELETED":
            self.learn(of_slice(change.new))

    def learn(self, found: Iterable[str]) -> None:
        """Store the current servers; none at all is a mistake and changes nothing."""
        servers = sorted(set(found))
        if not servers or servers == self._learned:
            return
        self._learned = servers
        if self._remembered is not None:
            try:
                kubeconfig.write(self._remembered, "".join(f"{server}\n" for server in servers))
            except OSError as error:
                log.warning("the servers' addresses cannot be stored in %s: %s", self._remembered, error)


def beside(path: str | Path) -> Path:
    """Return the file that belongs to a kubeconfig: agent.kubeconfig -> agent.servers."""
    return Path(path).with_suffix(".servers")


async def follow(client: Client, servers: Servers) -> None:
    """Keep `servers` what the cluster has, until cancelled; for clients that do not follow endpoint slices anyway."""
    selector, role = f"metadata.name={NAME}", daemon_roles.SERVERS
    informer = Informer(client, discovery_v1.EndpointSlice, NAMESPACE, field_selector=selector, granted_by=role)
    informer.subscribe(servers.changed)
    await informer.run()


def of_slice(slice_: discovery_v1.EndpointSlice) -> list[str]:
    """Return the URLs of the servers behind the Service `kubernetes`."""
    port = next((p.port for p in slice_.ports if p.name == "https"), None)
    addresses = [address for endpoint in slice_.endpoints for address in endpoint.addresses]
    return [f"https://{host_port(address, port)}" for address in addresses] if port else []


def _read(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text().split() if "://" in line]
    except (OSError, UnicodeDecodeError):
        return []
