"""Target of an autoscaler: any kind with a scale subresource, found in the table of built-in kinds or by discovery.

Discovery is asked again where a kind is not known yet, so that custom resources can be scaled as soon as they are served.
"""

from __future__ import annotations

import msgspec

from control.controllers.discovery import ONE_OBJECT_BYTES, DiscoveredResource, served
from kube.api import autoscaling_v1, autoscaling_v2
from kube.client import Client, answered
from kube.clock import Clock
from kube.errors import StatusError
from kube.resources import RESOURCES

AGAIN_SECONDS = 10.0
"""Minimum interval of discovery requests for kinds that are not served, in seconds."""


class UnknownKind(Exception):
    """No server has the kind; the message is upstream's."""


class Targets:
    """Finds resources by kind, reads and writes their Scale."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._served: list[DiscoveredResource] = []
        self._asked = float("-inf")

    async def resource(self, reference: autoscaling_v2.CrossVersionObjectReference) -> DiscoveredResource:
        """Return the resource that a reference's group and kind mean; raises UnknownKind, StatusError."""
        group, _, version = (reference.api_version or "").rpartition("/")
        for built_in in RESOURCES:
            if (built_in.group, built_in.kind) == (group, reference.kind) and built_in.version in (version, ""):
                return DiscoveredResource(
                    group,
                    built_in.version,
                    built_in.plural,
                    built_in.kind,
                    built_in.namespaced,
                    frozenset(built_in.verbs),
                )
        found = self._known(group, reference.kind)
        if found is None and self._clock.monotonic() - self._asked > AGAIN_SECONDS:
            self._asked = self._clock.monotonic()
            self._served, _ = await served(self._client)
            found = self._known(group, reference.kind)
        if found is None:
            raise UnknownKind(f'no matches for kind "{reference.kind}" in group "{group}"')
        return found

    def _known(self, group: str, kind: str) -> DiscoveredResource | None:
        return next((one for one in self._served if (one.group, one.kind) == (group, kind)), None)

    async def scale(self, resource: DiscoveredResource, namespace: str, name: str) -> autoscaling_v1.Scale:
        """Return the Scale of an object in a namespace; raises StatusError, for resources without namespaces too.

        Who may write an autoscaler, or pods, in a namespace reaches nothing outside it.
        """
        if not resource.namespaced or not namespace:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        path = resource.path(namespace, name) + "/scale"
        data = await self._client.call("GET", path, most_bytes=ONE_OBJECT_BYTES)
        return answered(data, autoscaling_v1.Scale, path)

    async def rescale(
        self, resource: DiscoveredResource, namespace: str, scale: autoscaling_v1.Scale, replicas: int
    ) -> None:
        """Set an object's replicas if it is unchanged since its Scale was read; raises StatusError."""
        spec = msgspec.structs.replace(scale.spec, replicas=replicas)
        changed = msgspec.structs.replace(scale, spec=spec, api_version="autoscaling/v1", kind="Scale")
        path = resource.path(namespace, scale.metadata.name or "") + "/scale"
        await self._client.call("PUT", path, body=msgspec.json.encode(changed))
