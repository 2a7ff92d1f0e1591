"""Computes what the gateway serves, and has it served: again whenever something changes that it follows from.

Only Gateways that a change affects are computed. After each computation the next one waits in proportion to its duration, so
that changes of routes, whose number their authors decide, leave most of the time to requests.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field

from kube.api import core_v1, discovery_v1
from kube.clock import Clock
from kube.gateway import model, names
from kube.gateway.cluster import Cluster
from kube.gateway.ingress_hosts import RecordedHosts
from kube.gateway.view import Certificate
from kube.informer import Change
from kube.object_names import key_of
from netproxy.gateway.api import Api
from netproxy.gateway.certificates import CertificateError, from_secrets
from netproxy.gateway.listening import Listening, Place, Served
from netproxy.gateway.routing import PortTable, compile_listeners
from netproxy.podnet.network import internal_ip

log = logging.getLogger(__name__)
LEAST, SHARE = 0.05, 3.0
"""Seconds between two computations at least, and in proportion to the duration of the last one."""
RETRY = 2.0
"""Seconds before another try to bind a port."""


@dataclass(slots=True)
class _Computed:
    """A Gateway as it was computed last."""

    namespace: str
    uid: str
    tables: dict[int, PortTable]
    tls: frozenset[int]
    """Listeners' ports with TLS."""
    certificates: dict[int, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """Names of Secrets by listeners' ports and hostnames."""


class Configuration:
    """Keeps listeners in accord with the API."""

    def __init__(self, api: Api, listening: Listening, clock: Clock) -> None:
        self._api, self._listening, self._clock = api, listening, clock
        self._changed = asyncio.Event()
        self._affected: set[str] = set()
        self._computed: dict[str, _Computed] = {}
        self._contexts: dict[tuple[str, ...], tuple[tuple[str, ...], ssl.SSLContext | None]] = {}
        """TLS settings by the names of their Secrets, with the resource versions of these."""
        self._hosts = RecordedHosts(api.hosts)
        self._cluster = Cluster(api.objects, self._certificate, self._hosts, self._affect)
        api.hosts.subscribe(lambda change: self._affect(names.INGRESS))
        api.slices.subscribe(self._slice_changed)
        api.certificates.subscribe(self._certificate_changed)
        api.node.subscribe(lambda change: self._changed.set())

    def _affect(self, key: str) -> None:
        self._affected.add(key)
        self._changed.set()

    def _certificate(self, namespace: str, name: str) -> Certificate:
        copy = self._api.certificates.get(f"{names.NAMESPACE}/{names.copy_of(namespace, name)}")
        return "missing" if copy is None else ""

    def _certificate_changed(self, change: Change[core_v1.Secret]) -> None:
        namespace, _, name = change.new.metadata.annotations.get(names.CERTIFICATE, "").partition("/")
        self._cluster.certificate_changed(namespace, name)
        self._changed.set()

    def _slice_changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        if change.new.metadata.namespace == names.NAMESPACE:
            self._changed.set()

    async def run(self) -> None:
        """Compute and serve until cancelled."""
        while True:
            if self._listening.failed and not self._changed.is_set():
                await self._clock.sleep(RETRY)
            else:
                await self._changed.wait()
            self._changed.clear()
            began = self._clock.monotonic()
            affected, self._affected = self._affected, set()
            for key in self._cluster.by_age(affected):
                try:
                    await self._compute(key)
                except Exception:
                    # It is served as before until it changes; others are not affected.
                    log.exception("gateway %s cannot be computed", key)
            self._listening.set(await self._wanted())
            await self._clock.sleep(max(LEAST, SHARE * (self._clock.monotonic() - began)))

    async def _compute(self, key: str) -> None:
        if key == names.INGRESS:
            if not self._hosts.known:
                return  # until it is known who owns which host; the records' events bring us back
            result = await self._cluster.compute_ingresses()
            await self._store(key, names.NAMESPACE, names.INGRESS, result.served)
            return
        gateway = self._cluster.gateway(key)
        if gateway is None:
            self._computed.pop(key, None)
            return
        served = (await self._cluster.compute(gateway)).served
        await self._store(key, gateway.metadata.namespace or "", gateway.metadata.uid or "", served)

    async def _store(self, key: str, namespace: str, uid: str, served: Iterable[model.Listener]) -> None:
        listeners = tuple(served)
        tables = await compile_listeners(listeners)
        found = _Computed(namespace, uid, tables, frozenset(each.port for each in listeners if each.tls))
        for each in listeners:
            if each.tls:
                found.certificates.setdefault(each.port, {})[each.hostname.lower()] = each.certificates
        self._computed[key] = found

    async def _wanted(self) -> dict[Place, Served]:
        """Return what is to be served at which addresses and ports."""
        wanted: dict[Place, Served] = {}
        used: set[tuple[str, ...]] = set()
        ports: set[int] = set()
        addresses = self._addresses()
        for key in sorted(self._computed):
            found = self._computed[key]
            for listener_port, node_port in self._api.ports(found.uid).items():
                table = found.tables.get(listener_port)
                if table is None or node_port in ports:
                    continue
                ports.add(node_port)
                secrets = found.certificates.get(listener_port, {})
                used.update(secrets.values())
                contexts = {host: await self._context(each) for host, each in secrets.items()}
                served = Served(table, {host: each for host, each in contexts.items() if each is not None})
                for address in addresses:
                    wanted[Place(address, node_port, listener_port in found.tls, found.namespace)] = served
        self._contexts = {key: value for key, value in self._contexts.items() if key in used}
        return wanted

    async def _context(self, secrets: tuple[str, ...]) -> ssl.SSLContext | None:
        """Return the TLS settings with the certificates of Secrets, None if they cannot be used."""
        found = [self._api.certificates.get(f"{names.NAMESPACE}/{name}") for name in secrets]
        present = [each for each in found if each is not None]
        versions = tuple(each.metadata.resource_version or "" for each in present)
        before = self._contexts.get(secrets)
        if before is not None and before[0] == versions:
            return before[1]
        made: ssl.SSLContext | None = None
        if present:
            try:
                made = await asyncio.to_thread(from_secrets, [each.data for each in present])
            except CertificateError as error:
                log.warning("%s: %s", ", ".join(map(key_of, present)), error)
        self._contexts[secrets] = versions, made
        return made

    def _addresses(self) -> list[str]:
        nodes = self._api.node.list()
        return [found for node in nodes for family in (4, 6) if (found := internal_ip(node, family))]
