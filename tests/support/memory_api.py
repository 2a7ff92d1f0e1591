"""A Transport that holds objects in memory: list and watch as an API server answers them, for tests of what follows.

It knows no validation, no defaults and no subresources: a test puts whole objects in. Watches are ordered and resume
from any revision, which is all that informers need; field and label selectors are ignored. Events are taken and dropped.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from kube import resources, serialize
from kube.client import Client, Response
from kube.errors import StatusError
from kube.object_names import key_of, metadata_of


class MemoryAPI:
    """`put` and `remove` objects; `client()` gives a Client that sees them."""

    def __init__(self) -> None:
        self.revision = 1
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, str, bytes]] = []
        """Revision, path, key, line."""
        self.away = False
        self._changed = asyncio.Event()

    def client(self) -> Client:
        return Client(self)

    def put(self, obj: msgspec.Struct) -> None:
        """Create or replace an object; its resourceVersion is set here."""
        resource = resources.of(type(obj))
        path, key = resource.path(), key_of(obj)
        known = self.objects.setdefault(path, {})
        self.revision += 1
        metadata = metadata_of(obj)
        metadata.resource_version = str(self.revision)
        metadata.uid = metadata.uid or f"uid-{path}-{key}"
        event = "MODIFIED" if key in known else "ADDED"
        known[key] = serialize.encode(obj)
        self._tell(event, path, key, known[key])

    def remove(self, obj: msgspec.Struct) -> None:
        path = resources.of(type(obj)).path()
        key = key_of(obj)
        self.objects[path].pop(key)
        self.revision += 1
        metadata_of(obj).resource_version = str(self.revision)
        self._tell("DELETED", path, key, serialize.encode(obj))

    def go_away(self, away: bool = True) -> None:
        """Refuse everything and break the watches, as a server that is down does."""
        self.away = away
        self._wake()

    def _tell(self, event: str, path: str, key: str, body: bytes) -> None:
        line = b'{"type":"%s","object":%s}\n' % (event.encode(), body)
        self.history.append((self.revision, path, key, line))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- Transport ------------------------------------------------------------------------------------------------
    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
        most_bytes: int | None = None,
    ) -> Response:
        if self.away:
            raise StatusError(503, "ServiceUnavailable", "connection refused")
        if method == "POST" and path.endswith("/events"):
            return Response(201, {}, body)
        if method != "GET":
            raise StatusError(405, "MethodNotAllowed", "this server is read-only")
        name = _wanted_name(query)
        found = self.objects.get(path, {})
        items = ",".join(item.decode() for key, item in found.items() if name in ("", _name(key)))
        metadata = json.dumps({"resourceVersion": str(self.revision)})
        return Response(200, {}, f'{{"metadata":{metadata},"items":[{items}]}}'.encode())

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        if self.away:
            raise StatusError(503, "ServiceUnavailable", "connection refused")
        yield self._watch(path, _wanted_name(query), int((query or {}).get("resourceVersion") or 0))

    async def _watch(self, path: str, name: str, since: int) -> AsyncIterator[bytes]:
        index = 0
        while not self.away:
            changed = self._changed
            while index < len(self.history):
                revision, where, key, line = self.history[index]
                index += 1
                if where == path and revision > since and name in ("", _name(key)):
                    yield line
            await changed.wait()

    async def close(self) -> None:
        return None


def _wanted_name(query: Mapping[str, str] | None) -> str:
    """Return what the field selector metadata.name asks for; other selectors are none of the proxy's."""
    return (query or {}).get("fieldSelector", "").removeprefix("metadata.name=")


def _name(key: str) -> str:
    return key.rpartition("/")[2]
