"""The API client that every role uses: typed calls over a `Transport`.

A transport moves requests and bytes; HTTPS is one (kube/transport.py), the API server's own process has another. The
client adds types: it fills in apiVersion and kind, encodes Structs, decodes answers, and turns a `Status` into
`StatusError`. It never retries: callers are level-triggered and do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from kube import errors, resources, serialize
from kube.api import meta_v1
from kube.errors import StatusError
from kube.json_object import UNREADABLE
from kube.object_names import name_of, namespace_of
from kube.yielding import LoopYield

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
TURN_BYTES = 256 << 10
"""Bytes of objects that are decoded before others have their turn: to decode as many takes 3 ms, 30 where fields are tiny."""
FIRST_PAGE, MOST_OF_A_PAGE, PAGE_BYTES = 8, 32, 1 << 20
"""Objects of the first page where a collection is gone through, of any page, and the bytes that the next should have."""
_loop_yield = LoopYield()


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Moves one request; a connection that fails raises `StatusError` 503 (reason ServiceUnavailable)."""

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
        """Send a request and return the whole answer, whatever its status.

        Raises StatusError 502 for an answer of another server (aggregation) that is longer than `most_bytes`.
        """
        ...

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """GET a long answer in chunks as they come; an answer other than 200 raises StatusError on entry."""
        ...

    async def close(self) -> None: ...


class ListResult(msgspec.Struct, Generic[R], frozen=True):
    items: list[R]
    resource_version: str
    continue_: str = ""


class WatchEvent(msgspec.Struct, Generic[R], frozen=True):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK (whose object carries only a resourceVersion)."""

    type: str
    object: R


Unreadable = Callable[[meta_v1.ObjectMeta, str], None]
"""Receives the metadata of an object that does not fit its type, and what does not."""


class _Watched(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Named(msgspec.Struct):
    metadata: meta_v1.ObjectMeta


class _ListMeta(msgspec.Struct):
    resourceVersion: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class _ListEnvelope(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _TimeSlice:
    """Yields to the event loop between objects that are decoded."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = 0

    def over(self, size: int) -> bool:
        """Count an object of so many bytes; return whether to yield before it."""
        self._bytes += size
        return self._bytes > TURN_BYTES

    async def yield_to_loop(self, size: int) -> None:
        """Yield and begin with an object."""
        await _loop_yield.wait()
        self._bytes = size


class Client:
    """Typed access to one API server. It yields between large objects: the server may share the event loop."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def close(self) -> None:
        await self.transport.close()

    # -- reads ----------------------------------------------------------------------------------------------------
    async def get(self, kind: type[T], name: str, namespace: str = "", *, resource_version: str = "") -> T:
        query = {"resourceVersion": resource_version} if resource_version else None
        data = await self.call("GET", resources.of(kind).path(namespace, name), query=query)
        return serialize.decode(data, kind)

    async def list(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        limit: int = 0,
        continue_: str = "",
        unreadable: Unreadable | None = None,
    ) -> ListResult[T]:
        """List objects. One that does not fit its type fails the list, or is passed to `unreadable` and left out."""
        query = _query(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            resourceVersion=resource_version,
            limit=limit,
            **{"continue": continue_},
        )
        data = await self.call("GET", resources.of(kind).path(namespace), query=query)
        envelope = serialize.decode(data, _ListEnvelope)
        items, time_slice = [], _TimeSlice()
        for raw in envelope.items or ():
            body = bytes(raw)
            if time_slice.over(len(body)):
                await time_slice.yield_to_loop(len(body))
            try:
                items.append(serialize.decode(body, kind))
            except msgspec.ValidationError as error:
                if unreadable is None:
                    raise
                unreadable(serialize.decode(body, _Named).metadata, str(error))
        metadata = envelope.metadata
        return ListResult(items, metadata.resourceVersion or "", metadata.continue_ or "")

    async def each(self, path: str, shape: type[R], *, accept: str = JSON) -> AsyncIterator[R]:
        """Yield every object of a collection's path, of each what `shape` has: the rest is passed over.

        Requests a page after the other, which all show one state; raises StatusError 410 where that is no longer kept, and
        502 where an answer has another shape: other servers serve resources too.
        """
        token, limit, time_slice = "", FIRST_PAGE, _TimeSlice()
        while True:
            query = _query(limit=limit, **{"continue": token})
            data = await self.call("GET", path, query=query, accept=accept)
            envelope = answered(data, _ListEnvelope, path)
            items = envelope.items or ()
            async for item in decoded(items, shape, path, time_slice):
                yield item
            token = envelope.metadata.continue_ or ""
            if not token:
                return
            limit = max(1, min(2 * limit, MOST_OF_A_PAGE, PAGE_BYTES * len(items) // len(data)))

    async def watch(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 0,
        unreadable: Unreadable | None = None,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Yield changes after `resource_version` until the server ends the watch; 410 raises StatusError (expired).

        An object that does not fit its type ends it too, or is passed to `unreadable` and counts as deleted.
        """
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=timeout_seconds,
        )
        time_slice = _TimeSlice()
        async with self.transport.stream(resources.of(kind).path(namespace), query=query) as chunks:
            async for line in lines(chunks):
                if time_slice.over(len(line)):
                    await time_slice.yield_to_loop(len(line))
                event = serialize.decode(line, _Watched)
                if event.type == "ERROR":
                    raise StatusError.from_status(msgspec.json.decode(event.object))
                body = bytes(event.object)
                try:
                    change = WatchEvent(event.type, serialize.decode(body, kind))
                except msgspec.ValidationError as error:
                    if unreadable is None:
                        raise
                    metadata = serialize.decode(body, _Named).metadata
                    unreadable(metadata, str(error))
                    change = WatchEvent("DELETED", kind(metadata=metadata))
                yield change

    # -- writes ---------------------------------------------------------------------------------------------------
    async def create(self, obj: T, *, dry_run: bool = False, field_manager: str = "") -> T:
        resource = identify(obj)
        path = resource.path(namespace_of(obj))
        query = _query(dryRun="All" if dry_run else "", fieldManager=field_manager)
        return serialize.decode(
            await self.call("POST", path, query=query, body=serialize.encode_readable(obj)), type(obj)
        )

    async def update(self, obj: T, *, subresource: str = "", field_manager: str = "") -> T:
        resource = identify(obj)
        path = resource.path(namespace_of(obj), name_of(obj), subresource)
        query = _query(fieldManager=field_manager)
        return serialize.decode(
            await self.call("PUT", path, query=query, body=serialize.encode_readable(obj)), type(obj)
        )

    async def update_status(self, obj: T) -> T:
        return await self.update(obj, subresource="status")

    async def patch(
        self,
        kind: type[T],
        name: str,
        namespace: str,
        patch: Any,
        *,
        type: str = MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Patch with a JSON-shaped value or a Struct; `type` is one of MERGE, STRATEGIC, JSON_PATCH, APPLY."""
        path = resources.of(kind).path(namespace, name, subresource)
        query = _query(fieldManager=field_manager, force="true" if force else "")
        data = await self.call("PATCH", path, query=query, body=serialize.encode_readable(patch), content_type=type)
        return serialize.decode(data, kind)

    async def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete one object; `propagation` is Foreground, Background, Orphan or the kind's default."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = _query(uid=uid, resourceVersion=resource_version)
        if preconditions:
            options["preconditions"] = preconditions
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        path = resources.of(kind).path(namespace, name)
        await self.call("DELETE", path, body=serialize.encode_readable(options))

    async def post(self, kind: type[T], name: str, namespace: str, subresource: str, body: msgspec.Struct) -> bytes:
        """POST to a subresource (pods/binding, pods/eviction, serviceaccounts/token) and return the answer's JSON."""
        return await self.call(
            "POST", resources.of(kind).path(namespace, name, subresource), body=serialize.encode_readable(body)
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        accept: str = JSON,
        most_bytes: int | None = None,
    ) -> bytes:
        """Send any request; return the body of a 2xx answer and raise StatusError for every other."""
        headers = {"Accept": accept}
        if body:
            headers["Content-Type"] = content_type
        options = {} if most_bytes is None else {"most_bytes": most_bytes}
        response = await self.transport.request(method, path, query=query, headers=headers, body=body, **options)
        if response.status >= 300:
            raise error_of(response.status, response.body)
        return response.body


def answered(data: bytes, shape: type[R], path: str) -> R:
    """Return of an answer what `shape` has; raises StatusError 502 for one that does not fit it."""
    try:
        return serialize.decode(data, shape)
    except msgspec.MsgspecError as error:
        raise StatusError(502, "", f"the answer to GET {path} cannot be read: {error}") from error


async def decoded(
    items: Iterable[msgspec.Raw], shape: type[R], path: str, time_slice: _TimeSlice | None = None
) -> AsyncIterator[R]:
    """Yield of each item of a list what `shape` has, and yield to the event loop; raises StatusError 502 as `answered`."""
    time_slice = time_slice or _TimeSlice()
    for raw in items:
        body = bytes(raw)
        if time_slice.over(len(body)):
            await time_slice.yield_to_loop(len(body))
        yield answered(body, shape, path)


def error_of(status: int, body: bytes) -> StatusError:
    """Read an error answer, which is a Status unless something between us and the server wrote it."""
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status":
        return StatusError.from_status(found, status)
    return StatusError(status, "", body.decode(errors="replace")[:1000].strip() or f"HTTP status {status}")


def identify(obj: msgspec.Struct) -> resources.Resource:
    """Fill in the object's apiVersion and kind and return its resource."""
    resource = resources.of(type(obj))
    obj.api_version, obj.kind = resource.api_version, resource.kind  # type: ignore[attr-defined]
    return resource


def _query(**options: Any) -> dict[str, str]:
    return {key: str(value) for key, value in options.items() if value}


async def lines(chunks: AsyncIterator[bytes], most_bytes: int | None = None) -> AsyncIterator[bytes]:
    """Yield the lines of a stream without empty ones; what comes after the last line break is dropped.

    Raises StatusError 502 for a line of more than `most_bytes`.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if most_bytes is not None and max(size + len((*whole, rest)[0]), *map(len, (*whole[1:], rest))) > most_bytes:
            raise errors.long_answer("a line of the answer", most_bytes)
        size = len(rest) if whole else size + len(rest)
        if whole:
            whole[0] = b"".join((*parts, whole[0]))
            parts.clear()
        parts.append(rest)
        for line in whole:
            if line:
                yield line
