"""An API in memory that takes writes, and whose watches of some kinds can be held: caches that lag behind the store.

Writes are held to resourceVersions and preconditions, and finalizers keep objects, as an API server has it; there is no
validation and a subresource is its object.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from kube import resources
from kube.client import Response
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.memory_api import MemoryAPI


class LaggingAPI(MemoryAPI):
    """`hold` a kind's watches and `let_go` of them; `requests` lists the methods and paths of all requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str]] = []
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, kind: type[Any]) -> None:
        """Deliver nothing more on watches of a kind."""
        self._held.setdefault(resources.of(kind).path(), asyncio.Event()).clear()

    def let_go(self, kind: type[Any]) -> None:
        """Deliver what was held, and all from now on."""
        self._held.setdefault(resources.of(kind).path(), asyncio.Event()).set()

    def read(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        """Return an object as it is stored; None if there is none."""
        stored = self.objects.get(resources.of(kind).path(), {}).get(f"{namespace}/{name}" if namespace else name)
        return msgspec.json.decode(stored, type=kind) if stored is not None else None

    def everything(self, kind: type[Any]) -> list[Any]:
        """Return the stored objects of a kind."""
        return [msgspec.json.decode(o, type=kind) for o in self.objects.get(resources.of(kind).path(), {}).values()]

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
        self.requests.append((method, path))
        await asyncio.sleep(0)
        collection, namespace, name = _split(path)
        if self.away or collection.endswith("/events"):
            return await super().request(method, path, query=query, body=body)
        if method == "GET" and not name:
            return self._list(collection, namespace)
        sent = msgspec.json.decode(body) if body else {}
        key = f"{namespace}/{name}" if namespace else name
        if method == "POST":
            made = sent["metadata"]["name"]
            return self._store(collection, f"{namespace}/{made}" if namespace else made, sent, new=True)
        stored = self.objects.get(collection, {}).get(key)
        if stored is None:
            raise StatusError(404, "NotFound", f"{path} not found")
        found: Object = msgspec.json.decode(stored)
        if method == "GET":
            return Response(200, {}, stored)
        if method == "DELETE":
            _check(found, sent.get("preconditions") or {})
            return self._delete(collection, key, found)
        _check(found, sent.get("metadata") or {})
        return self._store(collection, key, sent if method == "PUT" else _merged(found, sent))

    def _list(self, collection: str, namespace: str) -> Response:
        prefix = f"{namespace}/" if namespace else ""
        items = b",".join(o for key, o in self.objects.get(collection, {}).items() if key.startswith(prefix))
        return Response(200, {}, b'{"metadata":{"resourceVersion":"%d"},"items":[%s]}' % (self.revision, items))

    def _store(self, collection: str, key: str, obj: Object, *, new: bool = False) -> Response:
        known = self.objects.setdefault(collection, {})
        if new and key in known:
            raise StatusError(409, "AlreadyExists", f"{key} already exists")
        self.revision += 1
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(self.revision)
        metadata.setdefault("uid", f"uid-{self.revision}")
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            return self._gone(collection, key, obj)
        event = "MODIFIED" if key in known else "ADDED"
        known[key] = msgspec.json.encode(obj)
        self._tell(event, collection, key, known[key])
        return Response(200, {}, known[key])

    def _delete(self, collection: str, key: str, obj: Object) -> Response:
        if obj["metadata"].get("finalizers"):
            obj["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            return self._store(collection, key, obj)
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        return self._gone(collection, key, obj)

    def _gone(self, collection: str, key: str, obj: Object) -> Response:
        del self.objects[collection][key]
        body = msgspec.json.encode(obj)
        self._tell("DELETED", collection, key, body)
        return Response(200, {}, body)

    async def _watch(self, path: str, name: str, since: int) -> AsyncIterator[bytes]:
        gate = self._held.get(path)
        if gate is None:
            gate = self._held[path] = asyncio.Event()
            gate.set()
        async for line in super()._watch(path, name, since):
            await gate.wait()
            yield line


def _split(path: str) -> tuple[str, str, str]:
    """Return a path's collection in all namespaces, its namespace and its name."""
    parts = path.strip("/").split("/")
    root = 2 if parts[0] == "api" else 3
    rest, namespace = parts[root:], ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return "/" + "/".join([*parts[:root], rest[0]]), namespace, rest[1] if len(rest) > 1 else ""


def _check(found: Object, wanted: Object) -> None:
    """Raise StatusError (Conflict) where an object is not the one or the state that was meant."""
    for field in ("uid", "resourceVersion"):
        if wanted.get(field) and wanted[field] != found["metadata"][field]:
            raise StatusError(409, "Conflict", f"{field} is {found['metadata'][field]}, not {wanted[field]}")


def _merged(old: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged
