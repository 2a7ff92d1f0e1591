"""The objects of a cluster for tests: they are applied, created, read, changed and deleted."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import msgspec

from kube.client import APPLY, JSON, MERGE, Client
from kube.errors import StatusError
from kube.json_object import Object
from wherry.testing.errors import ClusterError
from wherry.testing.manifests import Source, located
from wherry.testing.resources import Resource, Resources
from wherry.testing.timing.real import RealTime
from wherry.testing.timing.virtual import VirtualTime

MANAGER = "wherry-testing"
STRICT = {"fieldValidation": "Strict"}
"""Unknown and duplicate fields are errors."""
SERVED_SECONDS = 10.0
"""Time that the kind of an object may take to be served after its definition was applied."""


class AsyncObjects(abc.ABC):
    """Methods of a cluster that runs."""

    _resources: Resources
    _time: RealTime | VirtualTime

    @property
    @abc.abstractmethod
    def client(self) -> Client:
        """Wherry's typed client (kube.client), in this process."""

    async def apply(self, source: Source, *, namespace: str = "default") -> list[Object]:
        """Apply objects by server-side apply, in order; return them as the server has them. Raise ClusterError."""
        return [await self._apply(obj, namespace, where) for where, obj in located(source)]

    async def _apply(self, obj: Object, namespace: str, place: str) -> Object:
        """Apply an object; errors name its place, if it has one."""
        try:
            return await self._applied(obj, namespace)
        except ClusterError as error:
            raise ClusterError(f"{place}: {error}" if place else str(error)) from error

    async def _applied(self, obj: Object, namespace: str) -> Object:
        resource = await self._served(obj["apiVersion"], obj["kind"])
        metadata = obj["metadata"]
        where = (metadata.get("namespace") or namespace) if resource.namespaced else ""
        query = {"fieldManager": MANAGER, "force": "true", **STRICT}
        body = msgspec.json.encode(obj)
        try:
            if metadata.get("name"):
                path = resource.path(where, metadata["name"])
                answer = await self.client.call("PATCH", path, query=query, body=body, content_type=APPLY)
            else:
                query.pop("force")
                answer = await self.client.call("POST", resource.path(where), query=query, body=body)
        except StatusError as error:
            name = metadata.get("name") or metadata.get("generateName")
            raise ClusterError(f"{obj['kind']} {name}: {error.message}") from error
        return _decoded(answer)

    async def create(self, obj: Mapping[str, Any], *, namespace: str = "default") -> Object:
        """Create an object, also of a kind that cannot be applied (SubjectAccessReview); return the answer."""
        resource = await self._served(str(obj.get("apiVersion")), str(obj.get("kind")))
        where = ((obj.get("metadata") or {}).get("namespace") or namespace) if resource.namespaced else ""
        return _decoded(await self._call("POST", resource.path(where), query=STRICT, body=msgspec.json.encode(obj)))

    async def _served(self, api_version: str, kind: str) -> Resource:
        """Return the resource of a kind whose definition may have been applied just now."""
        deadline = self._time.clock.monotonic() + SERVED_SECONDS
        resource = await self._resources.of_kind(api_version, kind)
        while True:
            revision = self._time.revision()
            try:
                await self.client.call("GET", resource.path(), query={"limit": "1"})
                return resource
            except StatusError as error:
                if error.code == 405:
                    return resource  # it cannot be listed
                if not error.not_found or not await self._time.changed(revision, deadline):
                    raise ClusterError(f"{kind} in {api_version} is not served: {error.message}") from error

    async def get(self, reference: str, *, namespace: str = "default") -> Object:
        """Return an object by its reference (`deployment/web`). Raise ClusterError if there is none."""
        resource, name = await self._reference(reference)
        return _decoded(await self._call("GET", resource.path(namespace, name)))

    async def list(self, resource: str, *, namespace: str = "default", selector: str = "") -> list[Object]:
        """Return the objects of a resource in a namespace ("" is all of them)."""
        found = await self._resources.named(resource)
        query = {"labelSelector": selector} if selector else {}
        answer = _decoded(await self._call("GET", found.path(namespace), query=query))
        return list(answer["items"])

    async def patch(
        self, reference: str, patch: Object, *, namespace: str = "default", subresource: str = ""
    ) -> Object:
        """Change an object by a merge patch; return it."""
        resource, name = await self._reference(reference)
        path = resource.path(namespace, name, subresource)
        body = msgspec.json.encode(patch)
        return _decoded(await self._call("PATCH", path, query=STRICT, body=body, content_type=MERGE))

    async def delete(self, reference: str, *, namespace: str = "default") -> None:
        """Delete an object, as kubectl does (in the background)."""
        resource, name = await self._reference(reference)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        await self._call("DELETE", resource.path(namespace, name), body=msgspec.json.encode(options))

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> bytes:
        try:
            return await self.client.call(method, path, query=query, body=body, content_type=content_type)
        except StatusError as error:
            raise ClusterError(error.message) from error

    async def _reference(self, reference: str) -> tuple[Resource, str]:
        kind, slash, name = reference.partition("/")
        if not kind or not slash or not name:
            raise ClusterError(f"{reference!r} names no object: write resource/name, for example deployment/web")
        return await self._resources.named(kind), name

    async def _find(self, path: str) -> Object:
        try:
            return _decoded(await self.client.call("GET", path))
        except StatusError as error:
            if error.not_found:
                return {}
            raise ClusterError(error.message) from error


def _decoded(data: bytes) -> Object:
    found: Object = msgspec.json.decode(data)
    return found
