"""Reconciles Gateways: computes each, generates its objects, and writes its status."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from control.controllers.gateway import plan
from control.controllers.gateway.dependencies import GatewayDependencies
from control.controllers.gateway.limits import NamespaceLimits
from control.controllers.gateway.listening_nodes import Known
from control.controllers.gateway.plan import Owner
from control.controllers.gateway.private_ports import NoPort
from kube.api import core_v1
from kube.clock import format_time
from kube.gateway import statuses
from kube.gateway.computation import Result, RouteResult
from kube.gateway.objects import Gateway
from kube.gateway.verdict import MOST_MESSAGE, Verdict, failed
from kube.object_names import key_of, name_of, namespace_of

NO_PORT_SECONDS = 60.0
"""Time until a Gateway without ports of the nodes is reconciled again."""


class Gateways:
    """Results of Gateways by key. `route_changed` gets the keys of routes whose status may have changed."""

    def __init__(
        self,
        shared: GatewayDependencies,
        affected: Callable[[str], None],
        route_changed: Callable[[str], None],
    ) -> None:
        self._client, self._clock, self._recorder = shared.client, shared.clock, shared.recorder
        self._cluster, self._generated, self._certificates = shared.cluster, shared.generated, shared.certificates
        self._listening, self._users = shared.listening, shared.users
        self._affected, self._route_changed = affected, route_changed
        self._reported: dict[str, str] = {}
        """Messages of events by Gateways that lack ports."""
        self._limits = NamespaceLimits()
        self._routes: dict[str, Mapping[str, RouteResult]] = {}

    def routes_of(self, key: str) -> Mapping[str, RouteResult] | None:
        """Return the results of the routes of a Gateway, None before it is computed."""
        return self._routes.get(key)

    async def prepare(self, key: str) -> tuple[Gateway, Result, str] | None:
        """Compute a Gateway, and record what it uses; None if there is none. The text is why it may not use it.

        One that may not is computed without its routes: any number of Gateways would have all routes compared.
        """
        gateway = self._cluster.gateway(key)
        if gateway is None:
            return None
        result = await self._cluster.compute_listeners(gateway)
        refused = self._admit(key, result)
        if refused:
            self._cluster.forget_matches(key)
        else:
            result = await self._cluster.compute(gateway)
            refused = self._admit(key, result)  # a certificate may have changed meanwhile
        self._certificates.use(key, () if refused or not result.accepted.ok else _certificates(result))
        return gateway, result, refused

    async def restore(self, key: str) -> None:
        """Record what a Gateway uses, at the start; one beyond the number of its namespace uses nothing and is not computed."""
        if self._cluster.gateway(key) is not None and not self._limits.admit(key, 0, 0):
            await self.prepare(key)

    def _admit(self, key: str, result: Result) -> str:
        return self._limits.admit(key, len(_ports(result)), len(_certificates(result)))

    async def reconcile(self, key: str) -> float | None:
        """Bring one Gateway, its objects and its status to what they should be; return the seconds until a retry."""
        prepared = await self.prepare(key)
        if prepared is None:
            await self._remove(key)
            return None
        gateway, result, refused = prepared
        self._record(key, result.routes)
        service, problem, unassigned = await self._generate(gateway, result, refused)
        now = self._clock.now()
        given = plan.addresses(service, now) if service is not None else []
        addresses, awaited = self._listed(gateway, result, service, given)
        if problem is None and _ports(result):
            problem = self._problem(given, addresses)
        if service is not None:
            self._report(gateway, service, _ports(result), now)
        without = plan.refused_ports(service) if service is not None else frozenset[int]()
        unserved = {**statuses.unserved_ports(without, awaited), **unassigned}
        status = statuses.gateway_status(gateway, result, addresses, problem, format_time(now), unserved)
        if status is not None:
            await self._client.patch(
                Gateway,
                name_of(gateway),
                namespace_of(gateway),
                {"metadata": _version(gateway), "status": statuses.gateway_body(status)},
                subresource="status",
            )
        if problem is None or refused:
            return NO_PORT_SECONDS if unassigned else None
        return {"NoResources": NO_PORT_SECONDS, "AddressNotAssigned": plan.BALANCER_SECONDS}.get(problem.reason)

    async def _generate(
        self, gateway: Gateway, result: Result, refused: str
    ) -> tuple[core_v1.Service | None, Verdict | None, Mapping[int, Verdict]]:
        """Generate the objects of a Gateway; return its Service, why it has none, and why it lacks some of its ports."""
        owner = Owner(key_of(gateway), gateway.metadata.uid or "")
        ports = _ports(result)
        if refused or not ports:
            await self._generated.remove(owner.key)
            return None, failed("NoResources", refused) if refused else None, {}
        await self._generated.remove(owner.key, keep=owner.uid)
        try:
            return await self._generated.ensure(owner, ports), None, {}
        except NoPort as error:
            problem = failed("NoResources", str(error))
        # It keeps what it has: a Service that waits for one of its ports would get it.
        kept = [port for port in ports if port in self._generated.ports_of(owner)]
        if not kept:
            await self._generated.remove(owner.key)
            return None, problem, {}
        return await self._generated.ensure(owner, kept), None, {port: problem for port in ports if port not in kept}

    def _listed(
        self, gateway: Gateway, result: Result, service: core_v1.Service | None, given: list[str]
    ) -> tuple[list[str], frozenset[int]]:
        """Return those of the addresses of a Gateway at which it is served, and ports that are not served at all of them."""
        key = key_of(gateway)
        if service is None:
            self._listening.forget(key)
            return given, frozenset()
        wanted = plan.places(service, self._generated.nodes, {each.port for each in result.served})
        return self._listening.listed(Owner(key, gateway.metadata.uid or ""), given, wanted, _known(gateway))

    def _report(self, gateway: Gateway, service: core_v1.Service, ports: Collection[int], now: datetime) -> None:
        """Report ports of the nodes that others have, once for each of these."""
        key, named = key_of(gateway), {port: f"Port {port}" for port in ports}
        message = "; ".join(self._users.missing(service, now).problems(named, key))[:MOST_MESSAGE]
        if message and message != self._reported.get(key):
            self._recorder.event(gateway, "Warning", "NotServed", message)
        self._reported.pop(key, None)
        if message:
            self._reported[key] = message

    def _problem(self, given: list[str], addresses: list[str]) -> Verdict | None:
        """Return why a Gateway with a Service is not served."""
        if not given:
            return failed("AddressNotAssigned", "The Service of the Gateway has no address yet")
        if not addresses:
            return failed("AddressNotAssigned", "The nodes do not listen on the ports of the Gateway yet")
        return None if self._generated.nodes else failed("NoResources", "No node is ready")

    async def _remove(self, key: str) -> None:
        self._record(key, None)
        self._certificates.use(key, ())
        self._listening.forget(key)
        self._reported.pop(key, None)
        await self._generated.remove(key)
        if (other := self._limits.release(key)) is not None:
            self._affected(other)

    def _record(self, key: str, routes: Mapping[str, RouteResult] | None) -> None:
        """Record the results of routes, and report those that are new."""
        before = self._routes.pop(key, {})
        if routes is not None:
            self._routes[key] = routes
        after = routes or {}
        for route in before.keys() | after.keys():
            result = after.get(route)
            if before.get(route) != result or (result is not None and result.resolved is None):
                self._route_changed(route)


def _version(found: Gateway) -> dict[str, str | None]:
    """Return what a patch must name, so that it is not applied to another object or state."""
    return {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}


def _known(gateway: Gateway) -> Known:
    """Return what the status of a Gateway reports as served."""
    status, generation = gateway.status, gateway.metadata.generation
    programmed = {
        each.name
        for each in status.listeners
        for one in each.conditions
        if one.type == "Programmed" and one.status == "True" and one.observed_generation == generation
    }
    ports = {each.port for each in gateway.spec.listeners if each.name in programmed}
    return Known([each.get("value", "") for each in status.addresses], ports)


def _certificates(result: Result) -> set[tuple[str, str]]:
    """Return the certificates of the listeners that can be served."""
    return {each for state in result.listeners if state.programmed for each in state.certificates}


def _ports(result: Result) -> list[int]:
    """Return the ports of the valid listeners: also those whose certificate is missing at the moment keep theirs."""
    if not result.accepted.ok:
        return []
    valid = (each for each in result.listeners if each.accepted.ok and each.conflicts.ok)
    return sorted({each.listener.port for each in valid})
