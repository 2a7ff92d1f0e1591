"""The cluster's Gateways and Ingresses as informers know them: computes each, and reports which are affected by a change.

Rules of routes are converted once and kept until the route, or what it refers to, changes. Computations yield to the event
loop: users decide how many routes there are. Each object is converted at the expense of its namespace (Conversions).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from kube.api import core_v1, networking_v1
from kube.gateway import computation, indexes, ingress_gateway, rules
from kube.gateway.allowed_routes import AllowedNamespaces
from kube.gateway.computation import Result
from kube.gateway.conversions import Conversions
from kube.gateway.grants import Grants
from kube.gateway.indexes import BACKEND, CERTIFICATE, CLASS, NAMESPACE, PARENT
from kube.gateway.informers import Informers
from kube.gateway.ingress_conversions import IngressConversions
from kube.gateway.ingress_gateway import IngressResult
from kube.gateway.ingress_hosts import HostOwnership
from kube.gateway.match_limit import Age, MatchLimit
from kube.gateway.names import CONTROLLER, INGRESS
from kube.gateway.objects import Gateway, GatewayClass, HTTPRoute, ReferenceGrant
from kube.gateway.references import References
from kube.gateway.rules import RouteRules
from kube.gateway.service_ports import PortIndexes, ServicePorts
from kube.gateway.steps import completed
from kube.gateway.view import Certificate
from kube.informer import Change
from kube.object_names import key_of, namespace_of

ROUTES_PER_ITERATION = 64
"""Routes whose rules are looked up between two iterations of the event loop."""


class Cluster:
    """Computes gateways. `certificate` returns the state of a Secret by namespace and name (View.certificate).

    `ownership` returns the namespaces that own the hosts of Ingresses.
    `affected` is called with the key of each Gateway, or INGRESS, that has to be computed again, and `follow` with each
    namespace for which `follow_references` has to be called.
    """

    def __init__(
        self,
        informers: Informers,
        certificate: Callable[[str, str], Certificate],
        ownership: HostOwnership,
        affected: Callable[[str], None],
        follow: Callable[[str], None],
    ) -> None:
        self._informers, self._ownership, self._affected = informers, ownership, affected
        self.certificate = certificate
        self._grants = Grants(lambda namespace: informers.grants.by_index(NAMESPACE, namespace))
        self._limit = MatchLimit(affected)
        self._ports = PortIndexes()
        self._rules = Conversions(rules.STOPPED, self._convert_again)
        self._ingresses = IngressConversions(
            informers.ingress_classes, informers.ingresses, self, lambda: affected(INGRESS)
        )
        self._references = References(
            informers,
            self._rules.forget,
            self._gateway_needed,
            follow,
            self._ingresses.forget,
            lambda: affected(INGRESS),
        )
        informers.add_indexes()
        self._subscribe()

    def _subscribe(self) -> None:
        each = self._informers
        each.classes.subscribe(self._class_changed)
        each.gateways.subscribe(self._gateway_changed)
        each.routes.subscribe(self._route_changed)
        each.grants.subscribe(self._grant_changed)
        each.namespaces.subscribe(self._namespace_changed)
        each.services.subscribe(self._service_changed)
        each.ingress_classes.subscribe(lambda change: self._affected(INGRESS))
        each.ingresses.subscribe(self._ingress_changed)

    # -- lookups (View) -------------------------------------------------------------------------------------------
    def labels(self, namespace: str) -> Mapping[str, str] | None:
        found = self._informers.namespaces.get(namespace)
        return found.metadata.labels if found is not None else None

    def ports(self, namespace: str, name: str) -> Generator[int, None, ServicePorts | None]:
        service = self._informers.services.get(f"{namespace}/{name}")
        return None if service is None else (yield from self._ports.of(namespace, name, service))

    def permitted(self, kind: str, namespace: str, target_kind: str, target_namespace: str, target: str) -> bool:
        return self._grants.permitted(kind, namespace, target_kind, target_namespace, target)

    # -- results --------------------------------------------------------------------------------------------------
    def gateway(self, key: str) -> Gateway | None:
        """Return a Gateway of Wherry's class that is not being deleted."""
        gateway = self._informers.gateways.get(key)
        if gateway is None or gateway.metadata.deletion_timestamp is not None:
            return None
        return gateway if self.serves(gateway.spec.gateway_class_name) else None

    def serves(self, name: str) -> bool:
        """Return whether a GatewayClass is Wherry's and valid."""
        found = self._informers.classes.get(name)
        return found is not None and found.spec.controller_name == CONTROLLER and found.spec.parameters_ref is None

    async def compute(self, gateway: Gateway) -> Result:
        """Compute a Gateway with its routes.

        Routes in namespaces that no listener allows are neither converted nor compared: any user can make some.
        """
        routes, refused = [], {}
        allowed = AllowedNamespaces(gateway, self)
        for number, key in enumerate(
            [key_of(each) for each in self._informers.routes.by_index(PARENT, key_of(gateway))]
        ):
            if number % ROUTES_PER_ITERATION == ROUTES_PER_ITERATION - 1:
                await asyncio.sleep(0)
            route = self._informers.routes.get(key)
            if route is None:
                continue
            if namespace_of(route) in allowed:
                routes.append((route, await self.rules_of(key, route)))
            else:
                refused[key] = computation.rejected(key_of(gateway), route, self._rules.converted(key))
        age = _age(gateway)
        before = self._limit.used_before(age, (namespace_of(route) for route, _ in routes))
        result = await completed(computation.compute_in_steps(gateway, routes, self, before))
        if (current := self.gateway(age[1])) is not None and _age(current) == age:
            self._limit.record(age, result.usage, before)
        return dataclasses.replace(result, routes={**result.routes, **refused}) if refused else result

    async def compute_listeners(self, gateway: Gateway) -> Result:
        """Compute a Gateway as if it had no routes, and record nothing."""
        return await completed(computation.compute_in_steps(gateway, (), self))

    def forget_matches(self, key: str) -> None:
        """Leave the matches of the routes of a Gateway that is not served to others."""
        self._limit.forget(key)

    def by_age(self, keys: Iterable[str]) -> list[str]:
        """Return keys in the order in which each Gateway's computation affects no earlier one's."""
        found = {key: self._informers.gateways.get(key) for key in keys}
        return sorted(found, key=lambda key: ("", key) if (each := found[key]) is None else _age(each))

    def served_ingresses(self) -> list[networking_v1.Ingress]:
        """Return the Ingresses of Wherry's classes."""
        return self._ingresses.served()

    def serves_ingress(self, ingress: networking_v1.Ingress) -> bool:
        """Return whether an Ingress is of one of Wherry's classes."""
        return self._ingresses.serves(ingress)

    async def compute_ingresses(self) -> IngressResult:
        """Compute the gateway for Ingresses."""
        found = await self._ingresses.converted()
        return await completed(ingress_gateway.compute_in_steps(found, self, self._ownership))

    async def rules_of(self, key: str, route: HTTPRoute) -> RouteRules:
        """Return the converted rules of a route, the newest one of its key."""
        return await self._rules.get(key, lambda: rules.convert_in_steps(route, self))

    async def follow_references(self, namespace: str) -> None:
        """Report the Gateways that are affected by changed objects to which those of a namespace, or its routes, refer."""
        await self._references.process(namespace)

    # -- changes --------------------------------------------------------------------------------------------------
    def certificate_changed(self, namespace: str, name: str) -> None:
        """Report the gateways that use a certificate of which the state has changed."""
        key = f"{namespace}/{name}"
        self._references.object_changed(CERTIFICATE, key)
        if self._informers.ingresses.has_index(CERTIFICATE, key):
            self._affected(INGRESS)

    def _class_changed(self, change: Change[GatewayClass]) -> None:
        for gateway in self._informers.gateways.by_index(CLASS, change.key):
            self._gateway_affected(key_of(gateway))

    def _gateway_changed(self, change: Change[Gateway]) -> None:
        if not _only_status(change):
            self._gateway_affected(change.key)

    def _gateway_affected(self, key: str) -> None:
        if self.gateway(key) is None:
            self._limit.forget(key)
        self._affected(key)

    def _gateway_needed(self, key: str) -> None:
        """Report a Gateway that something refers to, if it is served: another one is computed when it comes."""
        if self.gateway(key) is not None:
            self._affected(key)

    def _route_changed(self, change: Change[HTTPRoute]) -> None:
        if _only_status(change):
            return
        self._rules.forget(change.key)
        for key in _both(change, indexes.parents):
            self._gateway_needed(key)

    def _convert_again(self, key: str) -> None:
        if (route := self._informers.routes.get(key)) is not None:
            self._rules.forget(key)
            for each in indexes.parents(route):
                self._gateway_needed(each)

    def _grant_changed(self, change: Change[ReferenceGrant]) -> None:
        if _only_status(change):
            return
        self._grants.forget(namespace_of(change.new))
        self._references.grant_changed(each for each in (change.old, change.new) if each is not None)

    def _namespace_changed(self, change: Change[core_v1.Namespace]) -> None:
        old = change.old
        if change.type == "MODIFIED" and old is not None and old.metadata.labels == change.new.metadata.labels:
            return
        self._references.labels_changed(change.key)

    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        self._ports.forget(namespace_of(change.new), change.key.rpartition("/")[2])
        if change.type == "MODIFIED" and change.old is not None and _used(change.old) == _used(change.new):
            return
        self._references.object_changed(BACKEND, change.key)

    def _ingress_changed(self, change: Change[networking_v1.Ingress]) -> None:
        if not _only_status(change):
            self._ingresses.forget(change.key)
            self._affected(INGRESS)


def _age(gateway: Gateway) -> Age:
    return gateway.metadata.creation_timestamp or "", key_of(gateway)


def _both(change: Change[Any], function: Callable[[Any], Iterable[str]]) -> set[str]:
    return {key for each in (change.old, change.new) if each is not None for key in function(each)}


def _only_status(change: Change[Any]) -> bool:
    """Return whether nothing of an object has changed that a gateway is computed from."""
    old, new = change.old, change.new
    if change.type != "MODIFIED" or old is None:
        return False
    before, after = old.metadata, new.metadata
    same = before.uid == after.uid and before.deletion_timestamp == after.deletion_timestamp
    return same and before.annotations == after.annotations and bool(old.spec == new.spec)


def _used(service: core_v1.Service) -> tuple[object, ...]:
    """Return what a backend depends on."""
    return service.spec.type, [(each.name, each.port, each.protocol, each.app_protocol) for each in service.spec.ports]
