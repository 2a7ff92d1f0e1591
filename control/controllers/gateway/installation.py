"""Installs the gateway's definitions, GatewayClass and IngressClass.

Definitions are restored when somebody deletes them. Classes are created once, at the start: an administrator may delete them.
"""

from __future__ import annotations

import asyncio
import logging

from control.controllers.gateway import definitions
from control.controllers.gateway.definitions import Definition
from kube import serialize
from kube.api import apiextensions_v1, meta_v1, networking_v1
from kube.client import APPLY, Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.gateway.ingresses import DEFAULT_CLASS
from kube.gateway.names import CLASS, CONTROLLER
from kube.gateway.objects import GatewayClass, GatewayClassSpec
from kube.informer import Informer
from kube.object_names import name_of

log = logging.getLogger(__name__)
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RETRY_SECONDS, ESTABLISHED_SECONDS = 5.0, 0.2
FIELD_MANAGER = "wherry-gateway"


class Installation:
    """Follows the definitions."""

    def __init__(
        self, client: Client, found: Informer[apiextensions_v1.CustomResourceDefinition], clock: Clock
    ) -> None:
        self._client, self._found, self._clock = client, found, clock
        self._wanted: dict[str, Definition] = {}

    async def ensure(self) -> None:
        """Install what is missing; return once the definitions are served."""
        self._wanted = {each.name: each for each in await asyncio.to_thread(definitions.load)}
        while not all(self._served(name) for name in self._wanted):
            try:
                for name in self._wanted:
                    await self.ensure_definition(name)
                await self._clock.sleep(ESTABLISHED_SECONDS)
            except StatusError as error:
                log.warning("the definitions of the Gateway API are not installed: %s", error)
                await self._clock.sleep(RETRY_SECONDS)

    def concerns(self, name: str) -> bool:
        """Return whether a definition is one of those."""
        return name in self._wanted

    async def ensure_definition(self, name: str) -> None:
        """Create one definition, or bring Wherry's own up to date. Raises StatusError."""
        wanted, found = self._wanted[name], self._found.get(name)
        if found is not None and not wanted.outdated(found.metadata):
            return
        body = await asyncio.to_thread(lambda: serialize.encode(wanted.as_object()))
        if found is not None:
            query = {"fieldManager": FIELD_MANAGER, "force": "true"}
            await self._client.call("PATCH", f"{PATH}/{name}", query=query, body=body, content_type=APPLY)
            return
        try:
            await self._client.call("POST", PATH, query={"fieldManager": FIELD_MANAGER}, body=body)
        except StatusError as error:
            if not error.already_exists:
                raise

    def _served(self, name: str) -> bool:
        found = self._found.get(name)
        return found is not None and any(
            each.type == "Established" and each.status == "True" for each in found.status.conditions
        )

    async def ensure_classes(
        self, classes: Informer[GatewayClass], ingress_classes: Informer[networking_v1.IngressClass]
    ) -> None:
        """Create the classes that are missing. The IngressClass is the default unless another one is."""
        if classes.get(CLASS) is None:
            spec = GatewayClassSpec(controller_name=CONTROLLER)
            await self._create(GatewayClass(metadata=meta_v1.ObjectMeta(name=CLASS), spec=spec))
        if ingress_classes.get(CLASS) is None:
            taken = any(each.metadata.annotations.get(DEFAULT_CLASS) == "true" for each in ingress_classes.list())
            annotations = {} if taken else {DEFAULT_CLASS: "true"}
            metadata = meta_v1.ObjectMeta(name=CLASS, annotations=annotations)
            await self._create(
                networking_v1.IngressClass(
                    metadata=metadata, spec=networking_v1.IngressClassSpec(controller=CONTROLLER)
                )
            )

    async def _create(self, obj: GatewayClass | networking_v1.IngressClass) -> None:
        while True:
            try:
                await self._client.create(obj)
                return
            except StatusError as error:
                if error.already_exists:
                    return
                log.warning("class %s is not created: %s", name_of(obj), error)
                await self._clock.sleep(RETRY_SECONDS)
