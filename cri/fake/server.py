"""The fake on its socket: real gRPC around `FakeContainers` and `FakeImages`.

The rpcs come from the service descriptors: RunPodSandbox is the method run_pod_sandbox of one of the two
objects; one that has none answers UNIMPLEMENTED, as an older runtime would. Every call passes through one
place, where it is recorded and where failures and delays are injected.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import grpc.aio

from cri.fake.failures import Failures, RPCError
from cri.fake.images import FakeImages
from cri.fake.runtime import FakeContainers
from cri.fake.script import Sleep
from cri.messages import api


class FakeRuntime:
    """A runtime at `endpoint` while the context is open; tests look into `containers`, `images` and `calls`.

    `sleep` and `now` (nanoseconds) may come from a virtual clock.
    """

    def __init__(self, socket: Path, sleep: Sleep = asyncio.sleep, now: Callable[[], int] = time.time_ns) -> None:
        self.endpoint = f"unix://{socket}"
        self.images = FakeImages()
        self.containers = FakeContainers(self.images, sleep, now)
        self.failures = Failures()
        self.send_bytes = 16 << 20  # containerd's limit of an answer
        self.calls: list[tuple[str, Any]] = []  # rpc name and request, in order of arrival
        self.metadata: dict[str, dict[str, str | bytes]] = {}
        """Metadata of the last call, by the name of the rpc."""
        self._sleep = sleep
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Begin to serve; state from before a stop() is kept, as containers outlive a runtime's restart."""
        server = grpc.aio.server()
        for service, target in (("RuntimeService", self.containers), ("ImageService", self.images)):
            server.add_generic_rpc_handlers((self._handlers(service, target),))
        server.add_insecure_port(self.endpoint)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Cut every connection."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def __aenter__(self) -> "FakeRuntime":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        await self.containers.close()

    def _handlers(self, service: str, target: object) -> Any:
        handlers = {}
        descriptor = api.DESCRIPTOR.services_by_name[service]
        for method in descriptor.methods:
            request = getattr(api, method.input_type.name)
            if method.name == "GetContainerEvents":
                handlers[method.name] = grpc.unary_stream_rpc_method_handler(
                    self._events, request_deserializer=request.FromString, response_serializer=_serialize
                )
                continue
            implementation = getattr(target, _snake(method.name), None)
            if implementation is not None:
                handlers[method.name] = grpc.unary_unary_rpc_method_handler(
                    self._unary(method.name, implementation),
                    request_deserializer=request.FromString,
                    response_serializer=_serialize,
                )
        return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)

    def _unary(self, rpc: str, implementation: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        async def serve(request: Any, context: Any) -> Any:
            self.calls.append((rpc, request))
            self.metadata[rpc] = dict(context.invocation_metadata() or ())
            if seconds := self.failures.seconds(rpc):
                await self._sleep(seconds)
            try:
                if (failure := self.failures.take(rpc)) is not None:
                    raise failure
                answer = await implementation(request)
                if (size := answer.ByteSize()) > self.send_bytes:
                    message = f"trying to send message larger than max ({size} vs. {self.send_bytes})"
                    raise RPCError(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
                return answer
            except RPCError as error:
                await context.abort(error.code, error.message)

        return serve

    async def _events(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.calls.append(("GetContainerEvents", request))
        if not self.containers.events_supported:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method GetContainerEvents")
        queue = self.containers.subscribe()
        try:
            # The headers confirm the subscription: the client misses no event from here on.
            await context.send_initial_metadata(())
            while True:
                yield await queue.get()
        finally:
            self.containers.unsubscribe(queue)


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
