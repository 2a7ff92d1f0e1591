"""Deletes objects generated for Gateways after the addon was disabled: ports of the nodes, and copies of certificates."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from control.controllers.context import Context
from control.controllers.gateway.owner import owner_of
from kube.api import core_v1
from kube.errors import StatusError
from kube.gateway.names import CERTIFICATE, NAMESPACE
from kube.object_names import name_of
from kube.shared_informers import wait_until_listed

log = logging.getLogger(__name__)
RETRY_SECONDS = 10.0


class GatewayCleanup:
    """Runs in place of the controller. EndpointSlices are deleted with their Services, which own them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._services = context.informers.of(core_v1.Service)

    async def run(self) -> None:
        """Delete the objects, then wait until cancelled."""
        services = [each for each in self._services.list() if owner_of(each)]
        if services:
            from control.controllers.gateway.certificate_check import TYPE

            with self._context.informers.requested() as needed:
                secrets = self._context.informers.filtered(core_v1.Secret, NAMESPACE, field_selector=f"type={TYPE}")
            await wait_until_listed("gateway controller", needed, self._context.clock)
            for secret in secrets.list():
                if CERTIFICATE in secret.metadata.labels:
                    await self._delete(core_v1.Secret, secret)
            for service in services:
                await self._delete(core_v1.Service, service)
        await asyncio.Event().wait()

    async def _delete(self, kind: type[Any], found: Any) -> None:
        while True:
            try:
                await self._context.client.delete(kind, name_of(found), NAMESPACE, uid=found.metadata.uid or "")
                return
            except StatusError as error:
                if error.not_found or error.replaced:
                    return
                log.warning("%s of a gateway is not deleted: %s", name_of(found), error)
                await self._context.clock.sleep(RETRY_SECONDS)
