"""Kills an agent at one of its calls: the n-th that it makes to the runtime or writes to the API server, before it or after it.

All calls to the runtime go through `RuntimePassage`, a socket in front of the runtime's that passes bytes on; the API server in
this process is asked before each write. So the agent itself is whole and runs as it always does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio

from control.http.exchange import error_response
from cri.messages import api
from kube.errors import StatusError
from tests.support.agent_process import AgentProcess
from tests.support.control import ApiUnderTest

T = TypeVar("T")
_STREAMS = ("GetContainerEvents", "Subscribe")
_SIZE = [("grpc.max_receive_message_length", 16 << 20), ("grpc.max_send_message_length", 16 << 20)]


class CutError(Exception):
    """The caller is dead."""


class FaultInjector:
    """Kills the agent at one of its calls."""

    def __init__(self, agent: AgentProcess, server: ApiUnderTest) -> None:
        self._agent, self._left, self._after = agent, 0, False
        self.cut = asyncio.Event()
        self.where = ""
        answer = server.api.pipeline.answer

        async def answered(request: Any, *arguments: Any) -> Any:
            mine = b"kubelet/" in request.headers.get(b"user-agent", b"")
            if not mine or request.method == "GET":
                return await answer(request, *arguments)
            try:
                return await self.pass_on(f"{request.method} {request.path}", lambda: answer(request, *arguments))
            except CutError:
                return error_response(StatusError(503, "ServiceUnavailable", "cut"))

        server.api.pipeline.answer = answered  # type: ignore[method-assign,assignment]

    def arm(self, number: int, after: bool) -> None:
        """Have the agent killed at its n-th call from now on."""
        self._left, self._after, self.where = number, after, ""
        self.cut.clear()

    async def disarm(self) -> bool:
        """Kill nobody any more; True if the agent was killed, or is about to be: then it is dead on return."""
        self._left = 0
        if self.where:
            await self.cut.wait()  # it may be that the call is still on its way, with the agent to be killed after it
        return bool(self.where)

    async def pass_on(self, what: str, go: Callable[[], Awaitable[T]]) -> T:
        """Let a call through, unless it is the one. Raise CutError."""
        if not self._left:
            return await go()
        self._left -= 1
        if self._left:
            return await go()
        self.where = f"{'after' if self._after else 'before'} {what}"
        try:
            if self._after:
                await go()
        finally:
            self._agent.strike()  # whoever serves the call is cancelled with it
            self.cut.set()
        raise CutError


class RuntimePassage:
    """A socket in front of a runtime's; it notes which containers of which pods were started."""

    def __init__(self, socket: Path, runtime: str) -> None:
        self.endpoint, self._runtime = f"unix://{socket}", runtime
        self.injector: FaultInjector | None = None
        self.started: list[tuple[str, str]] = []
        """Name of the pod and of the container, in order."""
        self._made: dict[str, tuple[str, str]] = {}
        self._calling: set[asyncio.Task[bytes]] = set()

    async def __aenter__(self) -> RuntimePassage:
        self._channel: Any = grpc.aio.insecure_channel(self._runtime, options=_SIZE)
        self._server = grpc.aio.server(options=_SIZE)
        self._server.add_generic_rpc_handlers((_Calls(self),))
        self._server.add_insecure_port(self.endpoint)
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop(None)
        for calling in list(self._calling):
            calling.cancel()
        await asyncio.gather(*self._calling, return_exceptions=True)
        await self._channel.close(None)

    async def unary(self, method: str, request: bytes, context: Any) -> bytes:
        """Pass one call on, and its answer or error back."""
        rpc = method.rpartition("/")[2]

        async def call() -> bytes:
            answer: bytes = await self._channel.unary_unary(method)(request, metadata=context.invocation_metadata())
            self._note(rpc, request, answer)
            return answer

        async def go() -> bytes:
            # What the runtime has begun when its caller is killed it finishes, and that is recorded.
            calling = asyncio.create_task(call(), name=f"passing on {rpc}")
            self._calling.add(calling)
            calling.add_done_callback(self._called)
            return await asyncio.shield(calling)

        try:
            return await (self.injector.pass_on(rpc, go) if self.injector else go())
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "", error.trailing_metadata() or ())
        except CutError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        raise AssertionError("abort returns never")

    async def stream(self, method: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Pass a stream of events on."""
        call = self._channel.unary_stream(method)(request, metadata=context.invocation_metadata())
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        finally:
            call.cancel()

    def _called(self, calling: asyncio.Task[bytes]) -> None:
        self._calling.discard(calling)
        if not calling.cancelled():
            calling.exception()  # whoever called may be dead, and then nobody asks

    def _note(self, rpc: str, request: bytes, answer: bytes) -> None:
        if rpc == "CreateContainer":
            wanted = api.CreateContainerRequest.FromString(request)
            made = api.CreateContainerResponse.FromString(answer).container_id
            self._made[made] = (wanted.sandbox_config.metadata.name, wanted.config.metadata.name)
        elif rpc == "StartContainer":
            self.started.append(self._made[api.StartContainerRequest.FromString(request).container_id])


class _Calls(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Whatever is called, as bytes."""

    def __init__(self, passage: RuntimePassage) -> None:
        self._passage = passage

    def service(self, handler_call_details: Any) -> Any:
        method, passage = handler_call_details.method, self._passage

        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            async for message in passage.stream(method, request, context):
                yield message

        async def unary(request: bytes, context: Any) -> bytes:
            return await passage.unary(method, request, context)

        if method.rpartition("/")[2] in _STREAMS:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)
