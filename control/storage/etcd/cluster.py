"""The connection to an etcd cluster: a channel to each member, of which one is used until it fails.

A call that a member did not answer is retried at the next one until its deadline. An attempt may have taken effect
although its response was lost, so callers choose by what a second execution would do (kv.py): `call` is for reads and other
idempotent requests, `call_conditional` for writes that etcd rejects the second time, `call_at_most_once` for the others.

Streams use the same member as calls. If a member fails, its streams are cancelled too: a member that hangs, or whose machine
is switched off, sends nothing on a stream either. Each member has a channel to its own address, so TLS verifies its own
name. Keepalive pings detect a dead peer. gRPC reads TLS files once: a member that fails gets a new channel if they have
changed, because certificates are renewed while the server runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.protobuf.message import Message

from control.storage.etcd.errors import OutcomeUnknown, details, is_transient, not_executed, translate
from control.storage.store import Unavailable
from kube.urls import host_port

log = logging.getLogger(__name__)

DEADLINE = 10.0
"""Seconds until a call fails, over all members."""
FIRST_ATTEMPT = 2.0
"""Timeout of the first attempt in seconds, doubled for each next one: proposals during a change of the leader get no
response, and an etcd with a slow disk needs longer."""
FIRST_PAUSE, LAST_PAUSE = 0.05, 0.5
# A member that has lost its leader must end its streams instead of keeping them open without events.
_LEADER = (("hasleader", "true"),)
MAX_RESPONSE_BYTES = 16 << 20
"""Maximum length of a response to a range or watch request: several times the largest object. gRPC rejects longer ones
unread."""
_BOUNDED = {
    "name": [{"service": "etcdserverpb.KV", "method": "Range"}, {"service": "etcdserverpb.Watch", "method": "Watch"}],
    "maxResponseMessageBytes": MAX_RESPONSE_BYTES,
}
_OPTIONS = [
    ("grpc.service_config", json.dumps({"methodConfig": [_BOUNDED]})),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]

END = grpc.aio.EOF  # type: ignore[attr-defined]
"""Result of reading a stream that the member has ended."""

R = TypeVar("R", bound=Message)
Credentials = tuple[bytes | None, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of the members' CA and of the client certificate and key, which are optional."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def read(self) -> Credentials:
        """Return the CA, the key and the certificate; raises Unavailable if a file cannot be read."""
        try:
            ca, key, cert = (f.read_bytes() if f else None for f in (self.ca_file, self.key_file, self.cert_file))
        except OSError as error:
            raise Unavailable(f"etcd's TLS files: {error}") from error
        return ca, key, cert


class Cluster:
    """Channels to the members, by their URLs ("https://10.0.0.1:2379"). The first call connects."""

    def __init__(self, servers: Sequence[str], tls: Tls | None = None) -> None:
        if not servers:
            raise Unavailable("no etcd server is named")
        self._tls, self._servers = tls or Tls(), list(servers)
        self._credentials = [self._credentials_of(at) for at in range(len(servers))]
        self._channels = [_channel(*pair) for pair in zip(servers, self._credentials, strict=True)]
        self._closing: dict[grpc.aio.Channel, asyncio.Task[None]] = {}
        """Replaced channels, with the tasks that close them after their running calls."""
        self._calls: list[dict[str, Any]] = [{} for _ in servers]
        self._streams: list[set[Any]] = [set() for _ in servers]
        self._at = 0
        self.revision = 0
        """The newest of etcd's revisions that a response has contained."""
        self.trouble = ""
        """Error of the last call; empty if it succeeded."""

    async def call(self, path: str, request: Message, response_type: type[R], deadline: float = DEADLINE) -> R:
        """Make an idempotent call; raises the errors of `errors.translate`, and Unavailable after the deadline."""
        return (await self.call_conditional(path, request, response_type, deadline))[0]

    async def call_conditional(
        self, path: str, request: Message, response_type: type[R], deadline: float = DEADLINE
    ) -> tuple[R, bool]:
        """Make a call, with retries; return the response and whether an earlier attempt may have taken effect."""
        return await self._attempts(path, request, response_type, deadline, twice=True)

    async def call_at_most_once(self, path: str, request: Message, response_type: type[R]) -> R:
        """Make a call that must not be executed twice; raises OutcomeUnknown if it may have been, without a response."""
        return (await self._attempts(path, request, response_type, DEADLINE, twice=False))[0]

    async def _attempts(
        self, path: str, request: Message, response_type: type[R], deadline: float, *, twice: bool
    ) -> tuple[R, bool]:
        loop = asyncio.get_running_loop()
        end, pause, seconds, unsure = loop.time() + deadline, FIRST_PAUSE, FIRST_ATTEMPT, False
        while True:
            at = self._at
            try:
                left = max(0.001, end - loop.time())
                result = await self._call(at, path, response_type)(request, timeout=min(seconds, left))
                self.trouble = ""
                self.seen(result.header.revision)  # every response of etcd has one
                return result, unsure
            except grpc.aio.AioRpcError as error:
                if not is_transient(error):
                    raise translate(error, unsure=unsure) from error
                unsure |= not not_executed(error)
                self.fail_over(at, details(error))
                self._renew(at)
                if unsure and not twice:
                    raise OutcomeUnknown(f"etcd: {details(error)}") from error
                if loop.time() + pause >= end:
                    raise translate(error) from error
            except grpc.aio.UsageError as error:
                raise Unavailable("the connection to etcd is closed") from error
            await asyncio.sleep(pause)
            pause, seconds = min(pause * 2, LAST_PAUSE), seconds * 2

    def _call(self, at: int, path: str, response_type: type[R]) -> Any:
        call = self._calls[at].get(path)
        if call is None:
            call = self._calls[at][path] = self._channels[at].unary_unary(
                path, request_serializer=_serialize, response_deserializer=response_type.FromString
            )
        return call

    def stream(self, path: str, response_type: type[R]) -> tuple[int, Any]:
        """Open a stream in both directions; return the member's index, for `fail_over`, and the call.

        Reading it raises CancelledError after a failover to another member.
        """
        at = self._at
        make: Any = self._channels[at].stream_stream(
            path, request_serializer=_serialize, response_deserializer=response_type.FromString
        )
        try:
            call = make(metadata=_LEADER)
        except grpc.aio.UsageError as error:
            raise Unavailable("the connection to etcd is closed") from error
        self._streams[at].add(call)
        call.add_done_callback(self._streams[at].discard)
        return at, call

    def seen(self, revision: int) -> None:
        """Record that etcd has reached a revision of its own."""
        self.revision = max(self.revision, revision)

    def fail_over(self, at: int, why: str) -> None:
        """Use the next member from now on, unless this one is no longer in use."""
        self.trouble = why
        if self._at == at and len(self._channels) > 1:
            self._at = (at + 1) % len(self._channels)
            log.warning("etcd member %s: %s; switching to %s", self._servers[at], why, self._servers[self._at])
            for call in tuple(self._streams[at]):
                call.cancel()

    def _credentials_of(self, at: int) -> Credentials | None:
        """Return the TLS credentials for a member, None for one with an http URL."""
        return self._tls.read() if self._servers[at].startswith("https:") else None

    def _renew(self, at: int) -> None:
        """Replace a member's channel if the TLS files have changed since it was created."""
        try:
            credentials = self._credentials_of(at)
        except Unavailable as error:
            log.warning("%s", error)
            return
        if credentials == self._credentials[at]:
            return
        log.info("etcd member %s: connecting with the TLS files as they are now", self._servers[at])
        old, self._credentials[at] = self._channels[at], credentials
        self._channels[at], self._calls[at] = _channel(self._servers[at], credentials), {}
        self._closing[old] = task = asyncio.create_task(old.close(DEADLINE), name="closing a channel to etcd")
        task.add_done_callback(lambda _: self._closing.pop(old, None))

    async def close(self) -> None:
        """Cancel running calls and close the connections."""
        left = dict(self._closing)
        for task in left.values():
            task.cancel()
        await asyncio.gather(*left.values(), return_exceptions=True)
        for channel in (*self._channels, *left):
            with contextlib.suppress(grpc.aio.UsageError):
                await channel.close(None)


def _channel(server: str, credentials: Credentials | None) -> grpc.aio.Channel:
    parts = urlsplit(server if "://" in server else f"http://{server}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unavailable(f"etcd server {server!r}: write http://HOST:PORT or https://HOST:PORT")
    target = host_port(parts.hostname, parts.port or 2379)
    if parts.scheme == "https":
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(*(credentials or ())), options=_OPTIONS)
    return grpc.aio.insecure_channel(target, options=_OPTIONS)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
