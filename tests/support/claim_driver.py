"""A DRA driver's node part: a real gRPC server on a unix socket, with its registration socket beside it.

It prepares every claim as one CDI device named after the claim, and records its calls (`calls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from agent.claims.wire import dra_health_pb2 as health
from agent.claims.wire import dra_v1_pb2 as api
from agent.plugins.handler import DRA
from kube.api import meta_v1, resource_v1
from kube.client import Client
from tests.support.plugins import RegistrationSocket

NAME = "driver.example.com"
CLASS = "driver.example.com/card"


class ClaimDriver:
    """One driver; `fail` is the error of the next claims, `skip` leaves claims out of the answer."""

    def __init__(self, root: Path, version: str = "v1") -> None:
        self.root, self.version = root, version
        # Short, for the kernel's sake: a socket's path has at most 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="dra-")
        self.socket = Path(self._folder.name) / "dra.sock"
        self.fail = ""
        self.skip = False
        self.calls: list[tuple[str, list[str]]] = []
        self.prepared: Callable[[str], None] = lambda name: None
        """Called with the CDI name of what is made ready; a driver writes its specification then."""
        self.health: asyncio.Queue[Any] = asyncio.Queue()
        """Next health reports of the driver: a status's number, with a message."""
        self._server: grpc.aio.Server | None = None

    async def _prepare(self, request: Any, context: Any) -> Any:
        self.calls.append(("prepare", [claim.name for claim in request.claims]))
        answer = api.NodePrepareResourcesResponse()
        for claim in () if self.skip else request.claims:
            if self.fail:
                answer.claims[claim.uid].error = self.fail
            else:
                device = answer.claims[claim.uid].devices.add(pool_name="here", device_name="card-0")
                device.cdi_device_ids.append(f"{CLASS}={claim.name}")
                self.prepared(claim.name)
        return answer

    async def _unprepare(self, request: Any, context: Any) -> Any:
        self.calls.append(("unprepare", [claim.name for claim in request.claims]))
        answer = api.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            answer.claims[claim.uid].error = self.fail
        return answer

    async def _healths(self, request: Any, context: Any) -> AsyncIterator[Any]:
        while True:
            status, message = await self.health.get()
            device = health.DeviceIdentifier(pool_name="here", device_name="card-0")
            reported = health.DeviceHealth(
                device=device,
                health=status,
                message=message,
                last_updated_time=int(time.time()),
                health_check_timeout_seconds=1_000_000,
            )
            yield health.NodeWatchResourcesResponse(devices=[reported])

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve and be registered while the context is open."""
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                method, request_deserializer=kind.FromString, response_serializer=lambda m: m.SerializeToString()
            )
            for name, method, kind in (
                ("NodePrepareResources", self._prepare, api.NodePrepareResourcesRequest),
                ("NodeUnprepareResources", self._unprepare, api.NodeUnprepareResourcesRequest),
            )
        }
        service = f"k8s.io.kubelet.pkg.apis.dra.{self.version}.DRAPlugin"
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        stream = grpc.unary_stream_rpc_method_handler(
            self._healths, response_serializer=lambda m: m.SerializeToString()
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1alpha1.DRAResourceHealth", {"NodeWatchResources": stream}),)
        )
        server.add_insecure_port(f"unix://{self.socket}")
        await server.start()
        registration = self.root / "plugins_registry" / "r.sock"
        registration.parent.mkdir(parents=True, exist_ok=True)
        versions = (f"{self.version}.DRAPlugin", "v1alpha1.DRAResourceHealth")
        try:
            async with RegistrationSocket(registration, DRA, NAME, str(self.socket), versions) as socket:
                assert await socket.registration_errors.get() == ""
                yield
        finally:
            await server.stop(None)


async def allocated_claim(client: Client, name: str, *pods: Any, driver: str = NAME) -> resource_v1.ResourceClaim:
    """Make a claim as the scheduler leaves it: a device allocated, reserved for these pods (objects with metadata)."""
    request = resource_v1.DeviceRequest(name="card", exactly=resource_v1.ExactDeviceRequest(device_class_name="cards"))
    claim = await client.create(
        resource_v1.ResourceClaim(
            metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
            spec=resource_v1.ResourceClaimSpec(devices=resource_v1.DeviceClaim(requests=[request])),
        )
    )
    return await reserve(client, claim, *pods, driver=driver)


async def reserve(
    client: Client, claim: resource_v1.ResourceClaim, *pods: Any, driver: str = NAME
) -> resource_v1.ResourceClaim:
    """Write a claim's status: its allocation and for whom it is."""
    result = resource_v1.DeviceRequestAllocationResult(request="card", driver=driver, pool="here", device="card-0")
    claim.status.allocation = resource_v1.AllocationResult(devices=resource_v1.DeviceAllocationResult(results=[result]))
    claim.status.reserved_for = [
        resource_v1.ResourceClaimConsumerReference(
            resource="pods", name=pod.metadata.name or "", uid=pod.metadata.uid or ""
        )
        for pod in pods
    ]
    return await client.update_status(claim)
