"""Writes the statuses of HTTPRoutes and GatewayClasses."""

from __future__ import annotations

from control.controllers.gateway.gateways import Gateways
from kube.api import meta_v1
from kube.client import Client
from kube.clock import Clock, format_time
from kube.gateway import statuses
from kube.gateway.attachment import Attachment, parent_of
from kube.gateway.cluster import Cluster
from kube.gateway.names import CONTROLLER
from kube.gateway.objects import GatewayClass, HTTPRoute
from kube.informer import Informer


class Routes:
    """Statuses of routes, from the results of their Gateways."""

    def __init__(
        self, client: Client, clock: Clock, cluster: Cluster, gateways: Gateways, routes: Informer[HTTPRoute]
    ) -> None:
        self._client, self._clock, self._cluster = client, clock, cluster
        self._gateways, self._routes = gateways, routes

    def concerns(self, route: HTTPRoute) -> bool:
        """Return whether a route has, or has had, a Gateway of Wherry's class."""
        keys = (parent_of(each, route) for each in route.spec.parent_refs)
        return any(each.get("controllerName") == CONTROLLER for each in route.status.parents) or any(
            key is not None and self._cluster.gateway(key) is not None for key in keys
        )

    async def reconcile(self, key: str) -> None:
        """Write the status of a route, unless it is right. Raises StatusError."""
        route = self._routes.get(key)
        if route is None or route.metadata.deletion_timestamp is not None or not self.concerns(route):
            return
        attachments: dict[int, Attachment] = {}
        unknown: list[int] = []
        for position, reference in enumerate(route.spec.parent_refs):
            gateway = parent_of(reference, route)
            if gateway is None or self._cluster.gateway(gateway) is None:
                continue
            result = (self._gateways.routes_of(gateway) or {}).get(key)
            if result is None or result.generation != route.metadata.generation or position not in result.attachments:
                unknown.append(position)
            else:
                attachments[position] = result.attachments[position]
        now = format_time(self._clock.now())
        rules = await self._cluster.rules_of(key, route)
        parents = statuses.route_parents(route, rules, attachments, unknown, now)
        if parents is not None:
            await self._patch(HTTPRoute, route.metadata, {"parents": parents})

    async def reconcile_class(self, found: GatewayClass) -> None:
        """Write the status of a GatewayClass, unless it is right. Raises StatusError."""
        if found.spec.controller_name == CONTROLLER:
            status = statuses.class_status(found, format_time(self._clock.now()))
            if status is not None:
                await self._patch(GatewayClass, found.metadata, statuses.class_body(status))

    async def _patch(
        self, kind: type[HTTPRoute] | type[GatewayClass], metadata: meta_v1.ObjectMeta, status: object
    ) -> None:
        version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"metadata": version, "status": status}
        await self._client.patch(kind, metadata.name or "", metadata.namespace or "", body, subresource="status")
