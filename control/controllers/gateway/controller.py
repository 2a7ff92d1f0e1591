"""The gateway's controller: one queue for Gateways, routes, Ingresses, copies of certificates, classes and definitions.

The informers of the Gateway API start once its definitions are installed. Before the first write, everything is computed
once: copies of certificates are deleted, and ports are given, only when all that use some are known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from control.controllers.batch_delay import BatchDelay
from control.controllers.context import Context
from control.controllers.gateway.certificate_check import TYPE
from control.controllers.gateway.certificates import Certificates
from control.controllers.gateway.dependencies import GatewayDependencies
from control.controllers.gateway.gateways import Gateways
from control.controllers.gateway.generated import GeneratedObjects
from control.controllers.gateway.host_records import HostRecords
from control.controllers.gateway.ingresses import Ingresses
from control.controllers.gateway.installation import Installation
from control.controllers.gateway.listening_nodes import ListeningNodes, refuses
from control.controllers.gateway.port_users import PortUsers
from control.controllers.gateway.private_ports import NoPort
from control.controllers.gateway.routes import Routes
from kube import cancellation
from kube.api import apiextensions_v1, core_v1, discovery_v1, networking_v1
from kube.controller import Controller
from kube.gateway.cluster import Cluster
from kube.gateway.informers import Informers
from kube.gateway.names import INGRESS, NAMESPACE
from kube.gateway.objects import Gateway, GatewayClass, HTTPRoute, ReferenceGrant
from kube.gateway.steps import SHARES
from kube.gateway.view import Certificate
from kube.informer import Change
from kube.object_names import key_of
from kube.shared_informers import SharedInformers, wait_until_listed
from kube.step_limit import Limit, StepTooLong, limited

log = logging.getLogger(__name__)
DELAY_SECONDS, NO_PORT_SECONDS = 0.05, 60.0
"""Time that changes are collected before a Gateway is computed, and until a gateway without ports is reconciled again."""
WORKERS = 4
"""Each namespace has one of them at most: its Gateways may be compared with any number of routes."""
GATEWAY, ROUTE, INGRESSES, STATUS, COPY, CLASS, DEFINITION, REFERENCES = (
    "gateway route ingresses ingress-status copy class definition references".split()
)


class GatewayController:
    """Installs the definitions, then follows their objects."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._definitions = context.informers.of(apiextensions_v1.CustomResourceDefinition)

    async def run(self) -> None:
        """Work until cancelled."""
        context = self._context
        installation = Installation(context.client, self._definitions, context.clock)
        await installation.ensure()
        with context.informers.requested() as needed:
            work = _Work(context, installation)
        await wait_until_listed("gateway controller", needed, context.clock)
        self._definitions.subscribe(work.definition_changed)
        await work.run()


class _Work:
    """Queue of the controller, and the handlers of its keys: each is the kind of work, a space, and the object's key."""

    def __init__(self, context: Context, installation: Installation) -> None:
        self._installation = installation
        self.controller = Controller(
            "gateway", self.reconcile, workers=WORKERS, clock=context.clock, owner=self._owner, each=1
        )
        self._delay = BatchDelay()
        self._informers = _informers(context.informers)
        shared = self._dependencies(context)
        self._generated, self._certificates = shared.generated, shared.certificates
        self._hosts, self._listening, self._cluster = shared.hosts, shared.listening, shared.cluster
        self._gateways = Gateways(shared, self._affected, self._route_affected)
        self._routes = Routes(shared.client, shared.clock, shared.cluster, self._gateways, self._informers.routes)
        self._ingresses = Ingresses(shared, self._informers.ingresses, self._status_affected)
        self._handlers: dict[str, Callable[[str], Awaitable[float | None]]] = {
            GATEWAY: self._reconcile_gateway,
            ROUTE: self._routes.reconcile,
            INGRESSES: self._reconcile_ingresses,
            STATUS: self._ingresses.reconcile_status,
            COPY: self._certificates.reconcile,
            CLASS: self._reconcile_class,
            DEFINITION: installation.ensure_definition,
            REFERENCES: self._follow_references,
        }
        self._informers.classes.subscribe(lambda change: self.controller.enqueue(f"{CLASS} {change.key}"))
        self._informers.gateways.subscribe(lambda change: self._affected(change.key))
        self._informers.routes.subscribe(self._route_changed)
        self._informers.ingresses.subscribe(self._ingress_changed)

    def _dependencies(self, context: Context) -> GatewayDependencies:
        """Build what the handlers share."""
        client, clock, informers, own = context.client, context.clock, context.informers, self._informers
        hosts = HostRecords(client, clock, informers.filtered(core_v1.ConfigMap, NAMESPACE), self._affected)
        cluster = Cluster(own, self._certificate_state, hosts, self._affected, self._references_changed)
        secrets = informers.filtered(core_v1.Secret, field_selector=f"type={TYPE}")
        slices, nodes = informers.of(discovery_v1.EndpointSlice), informers.of(core_v1.Node)
        return GatewayDependencies(
            client,
            clock,
            context.recorder("gateway-controller"),
            cluster,
            hosts,
            Certificates(client, secrets, cluster.certificate_changed, self._copy_changed),
            GeneratedObjects(client, own.services, slices, nodes, self._affected),
            ListeningNodes(clock, self._affected, refuses),
            PortUsers(own.services, informers.of(core_v1.Pod)),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._installation.ensure_classes(self._informers.classes, self._informers.ingress_classes)
        self._generated.restore()
        self._ingresses.restore()
        await self._hosts.restore()
        known = sorted(self._informers.gateways.list(), key=self._rank)
        for gateway in known:
            await self._restore(key_of(gateway))
        await self._ingresses.prepare()
        for copy in self._certificates.copies():
            self._copy_changed(copy)
        self._affected(INGRESS)
        async with asyncio.TaskGroup() as group:
            cancellation.start(group, self._listening.run, "connections to gateways")
            await self.controller.run()

    async def _restore(self, key: str) -> None:
        """Compute a Gateway at the start, at the expense of its namespace. One that cannot be computed uses nothing until it is
        reconciled.
        """
        try:
            await limited(self._gateways.restore(key), Limit(SHARES, key.partition("/")[0]))
        except StepTooLong as error:
            log.error("gateway %s: %s", key, error)
        except Exception:
            log.exception("gateway %s cannot be computed", key)
        await asyncio.sleep(0)

    def _rank(self, gateway: Gateway) -> tuple[bool, str, str]:
        """Gateways that were served before come first, then the older ones."""
        key = key_of(gateway)
        return not self._generated.has_service(key), gateway.metadata.creation_timestamp or "", key

    def _owner(self, key: str) -> str:
        """Return whose time and turn the work for a key takes: those of the object's namespace."""
        kind, _, name = key.partition(" ")
        return self._certificates.namespace_of(name) if kind == COPY else name.partition("/")[0]

    async def reconcile(self, key: str) -> float | None:
        """Reconcile what a key of the queue names."""
        kind, _, name = key.partition(" ")
        return await self._handlers[kind](name)

    async def _reconcile_gateway(self, name: str) -> float | None:
        again = await self._gateways.reconcile(name)
        gateway = self._informers.gateways.get(name)
        if gateway is None:
            self._delay.forget(name)
        else:
            compared = sum(each.compared for each in (self._gateways.routes_of(name) or {}).values())
            self._delay.record(name, compared * len(gateway.spec.listeners))
        return again

    async def _reconcile_ingresses(self, name: str) -> float | None:
        try:
            self._delay.record(INGRESS, await self._ingresses.reconcile())
        except NoPort:
            return NO_PORT_SECONDS
        return self._ingresses.retry_seconds

    def _references_changed(self, namespace: str) -> None:
        self.controller.enqueue(f"{REFERENCES} {namespace}")

    async def _follow_references(self, namespace: str) -> float | None:
        """Go through what in a namespace refers to changed objects, within its share of the time of computations."""
        if (delay := SHARES.delay(namespace)) > 0:
            return delay
        await self._cluster.follow_references(namespace)
        return None

    async def _reconcile_class(self, name: str) -> None:
        if (found := self._informers.classes.get(name)) is not None:
            await self._routes.reconcile_class(found)

    # -- changes --------------------------------------------------------------------------------------------------
    def definition_changed(self, change: Change[apiextensions_v1.CustomResourceDefinition]) -> None:
        if self._installation.concerns(change.key):
            self.controller.enqueue(f"{DEFINITION} {change.key}")

    def _affected(self, key: str) -> None:
        name = INGRESSES if key == INGRESS else f"{GATEWAY} {key}"
        self.controller.enqueue_after(name, DELAY_SECONDS + self._delay.wait(key))

    def _route_affected(self, key: str) -> None:
        self.controller.enqueue(f"{ROUTE} {key}")

    def _status_affected(self, key: str) -> None:
        self.controller.enqueue(f"{STATUS} {key}")

    def _route_changed(self, change: Change[HTTPRoute]) -> None:
        if change.type != "DELETED" and self._routes.concerns(change.new):
            self._route_affected(change.key)

    def _ingress_changed(self, change: Change[networking_v1.Ingress]) -> None:
        if change.type != "DELETED" and self._ingresses.serves(change.key):
            self._status_affected(change.key)

    def _certificate_state(self, namespace: str, name: str) -> Certificate:
        return self._certificates.state(namespace, name)

    def _copy_changed(self, name: str) -> None:
        self.controller.enqueue(f"{COPY} {name}")


def _informers(informers: SharedInformers) -> Informers:
    return Informers(
        informers.of(GatewayClass),
        informers.of(Gateway),
        informers.of(HTTPRoute),
        informers.of(ReferenceGrant),
        informers.of(core_v1.Namespace),
        informers.of(core_v1.Service),
        informers.of(networking_v1.IngressClass),
        informers.of(networking_v1.Ingress),
    )
