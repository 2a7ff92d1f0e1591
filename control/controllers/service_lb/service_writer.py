"""Writes the addresses, the finalizer and the recorded ports of Services, all through the status, as upstream.

A patch names the Service's UID: addresses are never given to another Service of the same name, whose ports nobody claimed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from control.controllers.service_lb import port_records
from control.controllers.service_lb.plan import FINALIZER
from control.controllers.service_lb.ports import Port
from kube.api import core_v1
from kube.client import Client
from kube.clock import Clock, format_time
from kube.errors import StatusError
from kube.object_names import name_of, namespace_of
from kube.serialize import to_dict


class ServiceWriter:
    """Patches Services; one that has gone meanwhile needs nothing."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock

    async def clear(self, service: core_v1.Service, *, always: bool) -> core_v1.Service:
        """Remove all addresses, and the record of ports, if the known status has any or `always`; return the Service as it
        is then.
        """
        return await self.addresses(service, [], (), always=always)

    async def addresses(
        self, service: core_v1.Service, addresses: list[str], ports: Iterable[Port], *, always: bool = False
    ) -> core_v1.Service:
        """Set the addresses, if the known status differs or `always`; return the Service as it is then.

        Each lists the ports that were granted: the proxies serve no others there, and the Service's owner may add some at
        any time. Without an address the ports are recorded.
        """
        balancer = service.status.load_balancer
        listed = [{"port": number, "protocol": protocol} for protocol, number in sorted(ports)]
        wanted = [{"ip": address, "ipMode": "VIP", "ports": listed} for address in addresses]
        current = [to_dict(each) for each in (balancer.ingress if balancer is not None else ())]
        conditions = port_records.conditions(service, () if addresses else ports, format_time(self._clock.now()))
        status: dict[str, Any] = {}
        if current != wanted or always:
            status["loadBalancer"] = {"ingress": wanted or None}
        if conditions != service.status.conditions or always:
            status["conditions"] = conditions or None
        return await self._patch(service, {}, {"status": status}) if status else service

    async def remove_record(self, service: core_v1.Service) -> None:
        """Remove the record of ports alone: the addresses may be another load balancer's."""
        conditions = port_records.conditions(service, (), "")
        await self._patch(service, {}, {"status": {"conditions": conditions or None}})

    async def finalizer(self, service: core_v1.Service, *, wanted: bool) -> None:
        """Add or remove the finalizer; StatusError (conflict) if the Service is newer than the one given."""
        metadata = service.metadata
        if (FINALIZER in metadata.finalizers) == wanted:
            return
        names = [name for name in metadata.finalizers if name != FINALIZER] + ([FINALIZER] if wanted else [])
        await self._patch(service, {"resourceVersion": metadata.resource_version, "finalizers": names}, {})

    async def _patch(self, service: core_v1.Service, metadata: dict[str, Any], body: dict[str, Any]) -> core_v1.Service:
        name, namespace = name_of(service), namespace_of(service)
        whole = {"metadata": {"uid": service.metadata.uid, **metadata}, **body}
        try:
            return await self._client.patch(core_v1.Service, name, namespace, whole, subresource="status")
        except StatusError as error:
            if not error.not_found:
                raise
            return service
