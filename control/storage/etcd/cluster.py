"""The connection to an etcd cluster: a channel to each member, one of them in use, the next when it fails.

A call that a member could not answer is repeated at the next one until its deadline. An attempt may have taken effect
although its answer was lost, so callers say whether a call may be carried out twice (kv.py): `call` is for reads and the like,
`attempt` for writes that etcd refuses the second time, `once` for the others.

Streams go where the calls go: a member that is left is left by both, since one that hangs, or whose machine is switched off,
says nothing on a stream either. Members are asked by their own addresses, so TLS checks each against its own name. Pings
find a dead peer behind a connection that looks open. gRPC reads TLS files once: a member that fails gets a new channel where
they have changed since, for certificates are renewed while the server runs.
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

from control.storage.etcd.errors import Unclear, never_carried_out, passing, translate
from control.storage.store import Unavailable

log = logging.getLogger(__name__)

DEADLINE = 10.0
"""Seconds until a call gives up, over all members."""
FIRST_ATTEMPT = 2.0
"""Seconds that a member is given for the first attempt, and twice as long for each next one: what was proposed while the
leader changed is never answered, and an etcd whose disk is slow must get through in the end."""
FIRST_PAUSE, LAST_PAUSE = 0.05, 0.5
# A member that has lost its leader must end the streams it serves instead of holding them open in silence.
_LEADER = (("hasleader", "true"),)
ANSWER_BYTES = 16 << 20
"""The longest answer to a range, several times as large as the largest object; gRPC reads no more than the length of others."""
_RANGES = {"name": [{"service": "etcdserverpb.KV", "method": "Range"}], "maxResponseMessageBytes": ANSWER_BYTES}
_OPTIONS = [
    ("grpc.service_config", json.dumps({"methodConfig": [_RANGES]})),
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
"""What a stream reads when the member has ended it."""

R = TypeVar("R", bound=Message)
Proof = tuple[bytes | None, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Tls:
    """Files that prove the members to us and us to them; without the latter two, only the former."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def read(self) -> Proof:
        """Return the authority, the key and the certificate; raises Unavailable naming the file that cannot be read."""
        try:
            ca, key, cert = (f.read_bytes() if f else None for f in (self.ca_file, self.key_file, self.cert_file))
        except OSError as error:
            raise Unavailable(f"etcd's TLS files: {error}") from error
        return ca, key, cert


class Cluster:
    """Give it the members' URLs ("https://10.0.0.1:2379"); nothing is dialled before the first call."""

    def __init__(self, servers: Sequence[str], tls: Tls | None = None) -> None:
        if not servers:
            raise Unavailable("no etcd server is named")
        self._tls, self._servers = tls or Tls(), list(servers)
        self._proofs = [self._proof(at) for at in range(len(servers))]
        self._channels = [_channel(*made) for made in zip(servers, self._proofs, strict=True)]
        self._left: dict[grpc.aio.Channel, asyncio.Task[None]] = {}
        """Channels with TLS files of earlier, whose calls may end."""
        self._calls: list[dict[str, Any]] = [{} for _ in servers]
        self._streams: list[set[Any]] = [set() for _ in servers]
        self._at = 0
        self.revision = 0
        """The newest of etcd's revisions that an answer has shown."""
        self.trouble = ""
        """Why the last thing tried did not work; empty while etcd answers."""

    async def call(self, path: str, request: Message, answer: type[R], deadline: float = DEADLINE) -> R:
        """Make a call that may be made twice; raises what `errors.translate` makes, Unavailable after the deadline."""
        return (await self.attempt(path, request, answer, deadline))[0]

    async def attempt(self, path: str, request: Message, answer: type[R], deadline: float = DEADLINE) -> tuple[R, bool]:
        """Make a call, again where need be; return the answer and whether an earlier attempt may have taken effect."""
        return await self._attempts(path, request, answer, deadline, twice=True)

    async def once(self, path: str, request: Message, answer: type[R]) -> R:
        """Make a call that must not be carried out twice; raises Unclear where it may have been without an answer."""
        return (await self._attempts(path, request, answer, DEADLINE, twice=False))[0]

    async def _attempts(
        self, path: str, request: Message, answer: type[R], deadline: float, *, twice: bool
    ) -> tuple[R, bool]:
        loop = asyncio.get_running_loop()
        end, pause, seconds, unsure = loop.time() + deadline, FIRST_PAUSE, FIRST_ATTEMPT, False
        while True:
            at = self._at
            try:
                left = max(0.001, end - loop.time())
                result = await self._call(at, path, answer)(request, timeout=min(seconds, left))
                self.trouble = ""
                self.seen(result.header.revision)  # every answer of etcd's has one
                return result, unsure
            except grpc.aio.AioRpcError as error:
                if not passing(error):
                    raise translate(error, unsure) from error
                unsure |= not never_carried_out(error)
                self.turn_from(at, error.details() or error.code().name)
                self._renew(at)
                if unsure and not twice:
                    raise Unclear(f"etcd: {error.details() or error.code().name}") from error
                if loop.time() + pause >= end:
                    raise translate(error) from error
            except grpc.aio.UsageError as error:
                raise Unavailable("the connection to etcd is closed") from error
            await asyncio.sleep(pause)
            pause, seconds = min(pause * 2, LAST_PAUSE), seconds * 2

    def _call(self, at: int, path: str, answer: type[R]) -> Any:
        call = self._calls[at].get(path)
        if call is None:
            call = self._calls[at][path] = self._channels[at].unary_unary(
                path, request_serializer=_serialize, response_deserializer=answer.FromString
            )
        return call

    def stream(self, path: str, answer: type[R]) -> tuple[int, Any]:
        """Open a stream in both directions; return the member's index, for `turn_from`, and the call.

        Reading it raises CancelledError once the member is left.
        """
        at = self._at
        make: Any = self._channels[at].stream_stream(
            path, request_serializer=_serialize, response_deserializer=answer.FromString
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

    def turn_from(self, at: int, why: str) -> None:
        """Use the next member from now on, unless somebody has left this one already."""
        self.trouble = why
        if self._at == at and len(self._channels) > 1:
            self._at = (at + 1) % len(self._channels)
            log.warning("etcd member %s: %s; going on with %s", self._servers[at], why, self._servers[self._at])
            for call in tuple(self._streams[at]):
                call.cancel()

    def _proof(self, at: int) -> Proof | None:
        """Return what TLS needs, None for a member that is asked without."""
        return self._tls.read() if self._servers[at].startswith("https:") else None

    def _renew(self, at: int) -> None:
        """Make a member's channel anew where the TLS files are not those that it was made with."""
        try:
            proof = self._proof(at)
        except Unavailable as error:
            log.warning("%s", error)
            return
        if proof == self._proofs[at]:
            return
        log.info("etcd member %s: connecting with the TLS files as they are now", self._servers[at])
        old, self._proofs[at] = self._channels[at], proof
        self._channels[at], self._calls[at] = _channel(self._servers[at], proof), {}
        self._left[old] = task = asyncio.create_task(old.close(DEADLINE), name="closing a channel to etcd")
        task.add_done_callback(lambda _: self._left.pop(old, None))

    async def close(self) -> None:
        """Cancel what is under way and close the connections."""
        left = dict(self._left)
        for task in left.values():
            task.cancel()
        await asyncio.gather(*left.values(), return_exceptions=True)
        for channel in (*self._channels, *left):
            with contextlib.suppress(grpc.aio.UsageError):
                await channel.close(None)


def _channel(server: str, proof: Proof | None) -> grpc.aio.Channel:
    parts = urlsplit(server if "://" in server else f"http://{server}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unavailable(f"etcd server {server!r}: write http://HOST:PORT or https://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    target = f"{host}:{parts.port or 2379}"
    if parts.scheme == "https":
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(*(proof or ())), options=_OPTIONS)
    return grpc.aio.insecure_channel(target, options=_OPTIONS)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
