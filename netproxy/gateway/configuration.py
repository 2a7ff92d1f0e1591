"""Computes the Gateways that a change affects, compiles their routes and certificates, and passes these to the listeners.

The Gateways of each namespace are computed in a task of their own, within a share of all time, in steps that share the event
loop fairly with those of other namespaces. Each is served as soon as it is computed. So the changes of one namespace, of which
its users may make any number, delay neither requests nor the changes of another one by much.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from kube.api import core_v1, discovery_v1
from kube.clock import Clock
from kube.gateway import model, names
from kube.gateway.cluster import Cluster
from kube.gateway.ingress_hosts import RecordedHosts
from kube.gateway.steps import SHARES
from kube.gateway.view import Certificate
from kube.informer import Change
from kube.step_limit import Limit, StepTooLong, limited
from netproxy.gateway.api import Api
from netproxy.gateway.ingress_tables import IngressTables
from netproxy.gateway.listening import Listening, Place, Served
from netproxy.gateway.routing import compile_listeners
from netproxy.gateway.tls_contexts import TlsContexts
from netproxy.podnet.network import internal_ip

log = logging.getLogger(__name__)
LEAST, SHARE = 0.05, 3.0
"""Seconds between two publications, and between two computations of a namespace, at least; of publications in proportion to the
duration of the last one, too."""
RETRY = 2.0
"""Seconds before another try to bind a port, or to find sockets without a use."""
CERTIFICATES_SECONDS = 5.0
"""Seconds at least until certificates are checked for which their namespace had no time left."""


@dataclass(slots=True)
class _Computed:
    """A Gateway as it was computed last."""

    namespace: str
    uid: str
    compiled: bool
    """False if the Gateway had no ports of nodes yet."""
    served: dict[int, Served] = field(default_factory=dict)
    """By listeners' ports."""
    tls: frozenset[int] = frozenset()
    """Listeners' ports with TLS."""


class Configuration:
    """Keeps listeners in accord with the API."""

    def __init__(self, api: Api, listening: Listening, clock: Clock) -> None:
        self._api, self._listening, self._clock = api, listening, clock
        self._changed, self._more = asyncio.Event(), asyncio.Event()
        """Set if something is to be published, and if a namespace needs a task."""
        self._affected: dict[str, set[str]] = {}
        """Keys of Gateways to compute by namespaces, without a name if changed objects that they refer to come first; names of
        the namespaces that have a task."""
        self._working: set[str] = set()
        self._computed: dict[str, _Computed] = {}
        self._contexts = TlsContexts(lambda name: api.certificates.get(f"{names.NAMESPACE}/{name}"))
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """Of Gateways whose certificates wait, by key."""
        self._hosts = RecordedHosts(api.hosts)
        self._ingress_tables = IngressTables(lambda: self._affect(names.INGRESS))
        self._cluster = Cluster(
            api.objects, self._certificate, self._hosts, self._affect, lambda namespace: self._affect(f"{namespace}/")
        )
        api.hosts.subscribe(lambda change: self._affect(names.INGRESS))
        api.slices.subscribe(self._slice_changed)
        api.certificates.subscribe(self._certificate_changed)
        api.node.subscribe(lambda change: self._changed.set())

    def _affect(self, key: str) -> None:
        self._affected.setdefault(_namespace(key), set()).add(key)
        self._more.set()

    def _certificate(self, namespace: str, name: str) -> Certificate:
        copy = self._api.certificates.get(f"{names.NAMESPACE}/{names.copy_of(namespace, name)}")
        return "missing" if copy is None else ""

    def _certificate_changed(self, change: Change[core_v1.Secret]) -> None:
        namespace, _, name = change.new.metadata.annotations.get(names.CERTIFICATE, "").partition("/")
        self._cluster.certificate_changed(namespace, name)

    def _slice_changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        metadata = change.new.metadata
        if metadata.namespace != names.NAMESPACE:
            return
        key = metadata.annotations.get(names.OWNER, "")
        found = self._computed.get(key)
        if key and (found is None or not found.compiled or change.type == "DELETED"):
            self._affect(key)
        self._changed.set()

    async def run(self) -> None:
        """Compute and serve until cancelled."""
        self._working.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish(), name="publication")
            while True:
                self._more.clear()
                for namespace in self._affected.keys() - self._working:
                    self._working.add(namespace)
                    group.create_task(self._work(namespace), name=f"gateways of {namespace}")
                await self._more.wait()

    async def _work(self, namespace: str) -> None:
        """Compute the Gateways of a namespace that are affected, until there are none."""
        affected = self._affected[namespace]
        while affected:
            for key in self._cluster.by_age(affected):
                await self._clock.sleep(SHARES.delay(namespace))
                affected.discard(key)
                try:
                    await limited(self._compute(key), Limit(SHARES, namespace))
                except asyncio.CancelledError:
                    affected.add(key)
                    raise
                except StepTooLong as error:
                    log.error("gateway %s: %s; it is served as before", key, error)
                except Exception:
                    # It is served as before until it changes; others are not affected.
                    log.exception("gateway %s cannot be computed", key)
                self._changed.set()
            await self._clock.sleep(LEAST)
        del self._affected[namespace]
        self._working.discard(namespace)

    async def _publish(self) -> None:
        """Have what was computed served, again and again."""
        while True:
            if self._listening.unsettled and not self._changed.is_set():
                await self._clock.sleep(RETRY)
            else:
                await self._changed.wait()
            self._changed.clear()
            began = self._clock.monotonic()
            self._listening.set(self._wanted())
            await self._clock.sleep(max(LEAST, SHARE * (self._clock.monotonic() - began)))

    async def _compute(self, key: str) -> None:
        if key == names.INGRESS:
            if not self._hosts.known:
                return  # until it is known who owns which host; the records' events bring us back
            result = await self._cluster.compute_ingresses()
            await self._store(key, names.NAMESPACE, names.INGRESS, result.served)
            return
        namespace, _, name = key.partition("/")
        if not name:
            await self._cluster.follow_references(namespace)
            return
        gateway = self._cluster.gateway(key)
        if gateway is None:
            self._computed.pop(key, None)
            self._release(key)
            return
        uid = gateway.metadata.uid or ""
        if not self._api.ports(
            uid
        ):  # as the controller does: matches at Gateways beyond the limits of a namespace are none
            self._cluster.forget_matches(key)
            await self._store(key, namespace, uid, ())
            return
        await self._store(key, namespace, uid, (await self._cluster.compute(gateway)).served)

    async def _store(self, key: str, namespace: str, uid: str, listeners: Sequence[model.Listener]) -> None:
        """Compile the routes and certificates of a Gateway that has ports; another one is computed again once it has some."""
        if not self._api.ports(uid):
            self._computed[key] = _Computed(namespace, uid, compiled=False)
            self._release(key)
            return
        tables = await compile_listeners(listeners, self._ingress_tables)
        secure = [each for each in listeners if each.tls]
        wanted = {(each.namespace or namespace, each.certificates) for each in secure}
        contexts, current = await self._contexts.of(key, wanted)
        if not current:
            delay = max((self._contexts.delay(each) for each, _ in wanted), default=0.0)
            self._compute_later(key, max(delay, CERTIFICATES_SECONDS))
        served = {port: Served(table, {}) for port, table in tables.items()}
        for each in secure:
            context = contexts.get((each.namespace or namespace, each.certificates))
            if context is not None:
                served[each.port].contexts[each.hostname.lower()] = context
        ports = frozenset(each.port for each in secure)
        self._computed[key] = _Computed(namespace, uid, compiled=True, served=served, tls=ports)

    def _compute_later(self, key: str, seconds: float) -> None:
        """Have a Gateway computed again, and only once: each computation while certificates wait requests another one."""
        if (earlier := self._timers.get(key)) is not None:
            earlier.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._affect, key)

    def _release(self, key: str) -> None:
        """Drop the certificates of a Gateway that serves nothing."""
        self._contexts.release(key)
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _wanted(self) -> dict[Place, Served]:
        """Return what is to be served at which addresses and ports."""
        wanted: dict[Place, Served] = {}
        ports: set[int] = set()
        addresses = self._addresses()
        for key in sorted(self._computed):
            found = self._computed[key]
            for listener_port, node_port in self._api.ports(found.uid).items():
                served = found.served.get(listener_port)
                if served is None or node_port in ports:
                    continue
                ports.add(node_port)
                for address in addresses:
                    wanted[Place(address, node_port, listener_port in found.tls, found.namespace)] = served
        return wanted

    def _addresses(self) -> list[str]:
        nodes = self._api.node.list()
        return [found for node in nodes for family in (4, 6) if (found := internal_ip(node, family))]


def _namespace(key: str) -> str:
    """Return whose time the computation of a Gateway takes; the gateway of all Ingresses has its own."""
    return names.NAMESPACE if key == names.INGRESS else key.partition("/")[0]
