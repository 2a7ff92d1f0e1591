"""One gRPC channel over a unix socket, with deadlines, and errors in our own classes.

Calls do not wait for a runtime that is away: they fail at once with `UnavailableError` and the caller's
own back-off decides, while the channel redials by itself every 0.1 s, slowing to 1 s. So a restarted
containerd is in use again within a second, and nothing hangs for a deadline of minutes meanwhile.

A message is received as soon as it arrives, except with `unary_in_turn`: there the caller decides when. Until then gRPC holds
no more of it than the window of its stream, 64 KiB with `FIXED_WINDOW`.

Closing a channel fails the calls under way with `UnavailableError`. grpc.aio raises CancelledError there, with which a task
ends as if it had been cancelled; a CancelledError is passed on only where the task was cancelled.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from cri import errors

MESSAGE_BYTES = 16 << 20  # upstream's limit in both directions; ExecSync answers come close to it
LIST_BYTES = 2 * MESSAGE_BYTES
"""Largest answer that a channel of lists receives; containerd sends more than 16 MiB only if its configuration says so."""
PLUGIN_BYTES = 4 << 20
"""Largest message of a plugin: gRPC's default, which upstream has."""
PLUGIN_DEVICES = 10_000
"""Devices in a message of a plugin that count. Longer lists would hold the event loop while they are compared."""
PLUGIN_SECONDS = 1.0
"""Seconds after which the next message of a plugin about its devices is read."""

_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # In spite of its name: how long a runtime may take to accept a connection, here as upstream. One on a busy machine
    # takes longer than the pause before a try.
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    # A channel of its own per client: a shared one would carry another client's back-off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.default_authority", "localhost"),
]

TURN_SECONDS = 10.0
"""Seconds in which an answer is received, so that no runtime keeps the turn of others."""
FIXED_WINDOW = [("grpc.http2.bdp_probe", 0)]
"""Options of a channel whose streams have a window of 64 KiB until their messages are read: gRPC estimates no larger one."""

OF_PLUGINS = [("grpc.max_receive_message_length", PLUGIN_BYTES)]
LARGE_LISTS = [("grpc.max_receive_message_length", LIST_BYTES)]

R = TypeVar("R", bound=Message)
T = TypeVar("T")
Options = Sequence[tuple[str, Any]]
Metadata = tuple[tuple[str, str], ...]
Observe = Callable[[str, float, str], None]
"""Called after a call: with its name as RunPodSandbox, how many seconds it took, and the gRPC code, "" for success."""
Trace = Callable[[str], AbstractContextManager[Metadata]]
"""Called with the path of a call: a context of it, whose value is metadata to send."""


class Channel:
    """A lazily dialled connection to a runtime's socket; use from one event loop."""

    def __init__(
        self, endpoint: str, observe: Observe | None = None, options: Options = (), trace: Trace | None = None
    ) -> None:
        self.endpoint = endpoint
        self._observe, self._trace = observe, trace
        self._channel = grpc.aio.insecure_channel(
            _target(endpoint), options=list({**dict(_OPTIONS), **dict(options)}.items())
        )
        self._calls: dict[str, Any] = {}

    async def unary(
        self, path: str, request: Message, answer: type[R], deadline: float | None, metadata: Metadata = ()
    ) -> R:
        """Make one call; deadline in seconds, None waits for ever. Raise CRIError."""
        call = self._calls.get(path)
        if call is None:
            call = self._calls[path] = self._channel.unary_unary(
                path, request_serializer=_serialize, response_deserializer=answer.FromString
            )
        return await self._traced(path, lambda added: call(request, timeout=deadline, metadata=metadata + added))

    async def unary_in_turn(
        self,
        path: str,
        request: Message,
        answer: type[R],
        deadline: float | None,
        turn: AbstractAsyncContextManager[object],
        shorten: Callable[[R], T],
    ) -> T:
        """Make one call whose answer may be large: receive it inside `turn` and return what `shorten` makes of it there.

        `turn` is entered when the runtime has begun to answer; until then the deadline counts, and inside of the turn
        TURN_SECONDS. Raise CRIError, DeadlineExceededError only for the deadline.
        """
        begin = self._channel.unary_stream(path, request_serializer=_serialize, response_deserializer=answer.FromString)

        async def receive(metadata: Metadata) -> T:
            call = begin(request, metadata=metadata)
            try:
                try:
                    async with asyncio.timeout(deadline):
                        await call.initial_metadata()  # a runtime sends it with the answer
                except TimeoutError:
                    raise errors.DeadlineExceededError("Deadline Exceeded", code="DEADLINE_EXCEEDED") from None
                try:
                    async with turn, asyncio.timeout(TURN_SECONDS):
                        result = shorten(await _message(call, answer))
                        await call.read()  # the status
                except TimeoutError:
                    message = f"the runtime began to answer and did not finish within {TURN_SECONDS:g} s"
                    raise errors.IncompleteAnswerError(message, code="INTERNAL") from None
            finally:
                call.cancel()
            return result

        return await self._traced(path, receive)

    async def _traced(self, path: str, call: Callable[[Metadata], Awaitable[T]]) -> T:
        if self._trace is None:
            return await self._recorded(path, lambda: call(()))
        with self._trace(path) as metadata:
            return await self._recorded(path, lambda: call(metadata))

    async def _recorded(self, path: str, call: Callable[[], Awaitable[T]]) -> T:
        began, rpc = time.monotonic(), path.rpartition("/")[2]
        try:
            result = await call()
        except (*_FAILURES, errors.CRIError) as error:
            failure = error if isinstance(error, errors.CRIError) else _translate(error, rpc)
            failure.method = rpc
            if self._observe is not None:
                self._observe(rpc, time.monotonic() - began, failure.code)
            if failure is error:
                raise
            raise failure from error
        if self._observe is not None:
            self._observe(rpc, time.monotonic() - began, "")
        return result

    async def stream(
        self, path: str, request: Message, answer: type[R], deadline: float | None, metadata: Metadata = ()
    ) -> AsyncIterator[R]:
        """Make one call that answers with many messages; closing the iterator cancels it. Raise CRIError."""
        rpc = path.rpartition("/")[2]
        begin = self._channel.unary_stream(path, request_serializer=_serialize, response_deserializer=answer.FromString)
        try:
            call = begin(request, timeout=deadline, metadata=metadata)
        except _FAILURES as error:
            raise _translate(error, rpc) from error
        try:
            async for message in call:
                yield message
        except _FAILURES as error:
            raise _translate(error, rpc) from error
        finally:
            call.cancel()

    async def ready(self) -> None:
        """Return once the socket accepts connections; bound it with asyncio.timeout. Raise UnavailableError if closed."""
        try:
            await self._channel.channel_ready()
        except _FAILURES as error:
            raise _translate(error, "") from error

    async def close(self) -> None:
        """Cancel what is under way and close the connection."""
        with contextlib.suppress(grpc.aio.UsageError):
            await self._channel.close(None)


_FAILURES = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.CancelledError)


async def _message(call: Any, answer: type[R]) -> R:
    """Return the one message of a call. Raise CRIError if it has none."""
    message = await call.read()
    if not isinstance(message, answer):  # the end of the stream
        raise errors.CRIError("the runtime answered without a message", code="INTERNAL")
    return message


def _translate(error: BaseException, rpc: str) -> errors.CRIError:
    """Return the error for one of `_FAILURES`. Raise CancelledError if the running task was cancelled."""
    if isinstance(error, grpc.aio.AioRpcError):
        return errors.translate(error, rpc)
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
        raise error
    return errors.UnavailableError("the connection was closed", code="UNAVAILABLE", method=rpc)


def _target(endpoint: str) -> str:
    """Accept both unix:///run/containerd/containerd.sock and a bare path, as upstream's flag does."""
    return endpoint if endpoint.startswith("unix:") else f"unix://{endpoint}"


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
