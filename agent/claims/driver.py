"""Client of one DRA driver, in version v1 of its interface, or in v1beta1 where it has no other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import TypeVar

from google.protobuf.message import Message

from agent.claims import messages as m
from agent.claims.checkpoint import ClaimDevice, ClaimInfo
from agent.claims.device_health import DEFAULT_SECONDS, HEALTHY, UNHEALTHY, UNKNOWN, Health
from agent.managers.errors import DynamicResourceError
from cri.channel import OF_PLUGINS, PLUGIN_DEVICES, Channel
from cri.errors import CRIError, UnimplementedError
from cri.texts import NAME, shortened

CALL_SECONDS = 45.0
R = TypeVar("R", bound=Message)


class DRAClient:
    """A driver at its socket; `version` is v1 or v1beta1."""

    def __init__(self, name: str, endpoint: str, version: str) -> None:
        self.name, self.endpoint, self._version = name, endpoint, version
        self._channel = Channel(endpoint, options=OF_PLUGINS)
        self._package = f"k8s.io.kubelet.pkg.apis.dra.{version}"

    async def _call(self, rpc: str, request: Message, answer: type[R]) -> R:
        try:
            try:
                return await self._channel.unary(f"/{self._package}.DRAPlugin/{rpc}", request, answer, CALL_SECONDS)
            except UnimplementedError:
                # Stubs generated without the long package name serve the short one, by which drivers register.
                self._package = self._version
                return await self._channel.unary(f"/{self._package}.DRAPlugin/{rpc}", request, answer, CALL_SECONDS)
        except CRIError as error:
            raise DynamicResourceError(f"{rpc}: {error.grpc_text()}") from error

    async def prepare(self, claims: Sequence[ClaimInfo]) -> dict[str, list[ClaimDevice]]:
        """Have claims made ready; return their devices by the claim's UID. Raise DynamicResourceError."""
        request = m.NodePrepareResourcesRequest(claims=_named(claims))
        answer = await self._call("NodePrepareResources", request, m.NodePrepareResourcesResponse)
        self._check("NodePrepareResources", claims, {uid: one.error for uid, one in answer.claims.items()})
        return {
            uid: [
                ClaimDevice(
                    d.pool_name,
                    d.device_name,
                    tuple(d.request_names),
                    tuple(d.cdi_device_ids),
                    d.share_id if d.HasField("share_id") else None,
                )
                for d in one.devices
            ]
            for uid, one in answer.claims.items()
        }

    async def unprepare(self, claims: Sequence[ClaimInfo]) -> None:
        """Have the driver release claims. Raise DynamicResourceError."""
        request = m.NodeUnprepareResourcesRequest(claims=_named(claims))
        answer = await self._call("NodeUnprepareResources", request, m.NodeUnprepareResourcesResponse)
        self._check("NodeUnprepareResources", claims, {uid: one.error for uid, one in answer.claims.items()})

    async def watch_health(self, version: str) -> AsyncIterator[list[Health]]:
        """Yield the driver's reports on the health of its first PLUGIN_DEVICES devices, until it goes away. Raise CRIError."""
        path = f"/{version}.DRAResourceHealth/NodeWatchResources"
        names = {m.HealthStatus.HEALTHY: HEALTHY, m.HealthStatus.UNHEALTHY: UNHEALTHY}
        async for answer in self._channel.stream(
            path, m.NodeWatchResourcesRequest(), m.NodeWatchResourcesResponse, deadline=None
        ):
            yield [
                Health(
                    found.device.pool_name,
                    found.device.device_name,
                    names.get(found.health, UNKNOWN),
                    found.message,
                    float(found.last_updated_time),
                    max(found.health_check_timeout_seconds, 0) or DEFAULT_SECONDS,
                )
                for found in islice(answer.devices, PLUGIN_DEVICES)
            ]

    def _check(self, rpc: str, claims: Sequence[ClaimInfo], errors: dict[str, str]) -> None:
        names = {claim.uid: claim.name for claim in claims}
        for uid, error in errors.items():
            if uid not in names:
                raise DynamicResourceError(f"{rpc} returned result for unknown claim UID {shortened(uid, NAME)}")
            if error:
                raise DynamicResourceError(f"{rpc} failed for ResourceClaim {names[uid]}: {shortened(error)}")
        if missing := len(names) - len(errors):
            raise DynamicResourceError(f"{rpc} skipped {missing} ResourceClaims")

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()


def _named(claims: Sequence[ClaimInfo]) -> list[m.Claim]:
    return [m.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]
