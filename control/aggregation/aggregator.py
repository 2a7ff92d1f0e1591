"""The aggregation layer: requests for a group version that an APIService gives to another server are passed on to it.

It stands before the local handlers. Without extensions that is one look at an empty dict; with them, their paths are passed
on after this server has authenticated and authorised the request, and the documents that list groups are completed.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Awaitable
from urllib.parse import quote

import msgspec

from control.aggregation import documents
from control.aggregation.merged_discovery import MergedDiscovery
from control.aggregation.merged_document import WholeDocument
from control.aggregation.remote import Remote, identity, versions_in_order
from control.event_loop import offload
from control.http import encodings, query
from control.http.exchange import Answer, Handler, Request, Response, headers_of, indented
from control.http.negotiate import negotiate
from control.http.pieces import whole
from control.http.proxy_request import proxy_request
from control.interfaces.lookup import Objects
from kube import errors

JSON = b"application/json"
_VIA = b"1.1 " + secrets.token_hex(8).encode()
"""This process in the header `Via` of the requests that it passes on (RFC 9110, 7.6.3): one that comes back goes round."""


class Extensions:
    """The extension servers by group and version, as the APIServices of now name them."""

    def __init__(self) -> None:
        self.remotes: dict[tuple[str, str], Remote] = {}

    def availability(self) -> list[tuple[str, bool]]:
        """Return the name of each APIService and whether its server answers."""
        return [(f"{version}.{group}", remote.available) for (group, version), remote in self.remotes.items()]


class Aggregator:
    """Handlers for resource paths and for all others, before the local ones."""

    def __init__(self, lookup: Objects, resources: Handler, finite: Handler, extensions: Extensions) -> None:
        self.lookup = lookup
        self._resources, self._finite = resources, finite
        self.extensions = extensions
        self._whole, self._discovery = WholeDocument(finite), MergedDiscovery(finite)

    def resources(self, request: Request) -> Awaitable[Answer]:
        """Return the work of a request for a resource."""
        if self.extensions.remotes:
            remote = self.extensions.remotes.get((request.info.group, request.info.version))
            if remote is not None:
                return self._pass_on(remote, request)
        return self._resources(request)

    async def finite(self, request: Request) -> Answer:
        """Serve discovery, OpenAPI and what else there is."""
        remote = self._remote_of_document(request)
        if remote is not None:
            return await self._pass_on(remote, request)
        answer = await self._local(request)
        if request.pretty and isinstance(answer, Response) and request.path.startswith("/api"):
            body = whole(answer.body)
            kind, user = answer.content_type, request.user.name
            answer.body = await offload.run(user, len(body), indented, body, kind, pretty=True)
        return answer

    def _remote_of_document(self, request: Request) -> Remote | None:
        """Return the extension server that serves a version's discovery or OpenAPI document, if any."""
        parts = request.path.strip("/").split("/") if self.extensions.remotes else []
        if len(parts) not in (3, 5) or "apis" not in parts:
            return None
        remote = self.extensions.remotes.get((parts[-2], parts[-1]))
        return remote if remote is not None and (parts[0] == "apis" or remote.openapi) else None

    async def _local(self, request: Request) -> Answer:
        """Serve what this server knows, with what it has read of its extensions."""
        if not self.extensions.remotes or not request.path.startswith(("/apis", "/openapi/")):
            return await self._finite(request)
        parts = request.path.strip("/").split("/")
        remotes = versions_in_order(self.extensions.remotes.values())
        if parts == ["openapi", "v2"]:
            return await self._whole.answer(request, [r.part for r in remotes if r.part is not None])
        if parts == ["openapi", "v3"]:
            return await self._index(request, remotes)
        if parts == ["apis"]:
            return await self._discovery.answer(request, remotes)
        if len(parts) == 2 and parts[0] == "apis" and any(r.place[0] == parts[1] for r in remotes):
            return await self._group(request, parts[1], remotes)
        return await self._finite(request)

    async def _index(self, request: Request, remotes: list[Remote]) -> Answer:
        """Complete the index of OpenAPI v3 documents."""
        answer = await self._finite(request)
        if not isinstance(answer, Response) or answer.status != 200:
            return answer
        found = documents.openapi(msgspec.json.decode(whole(answer.body)), remotes)
        return Response(200, msgspec.json.encode(found), answer.content_type, answer.headers)

    async def _group(self, request: Request, name: str, remotes: list[Remote]) -> Answer:
        local = await self._finite(request)
        found = None
        if isinstance(local, Response) and local.status == 200 and local.content_type == JSON:
            found = msgspec.json.decode(whole(local.body))
        shown = documents.group(found, name, remotes)
        assert shown is not None
        wanted = negotiate(request.header(b"accept"), transform=False)
        return Response(200, encodings.write(shown, wanted, "meta_v1", "APIGroup"), wanted.content_type)

    async def _pass_on(self, remote: Remote, request: Request) -> Answer:
        if not remote.available:
            return Response(503, b"service unavailable\n", b"text/plain; charset=utf-8")
        if any(name.lower() == b"via" and _VIA in value for name, value in headers_of(request)):
            raise errors.unavailable("the extension server's Service leads back to this API server")
        added = [*identity(request.user), (b"Via", _VIA)]
        dial = functools.partial(remote.dial, self.lookup)
        return await proxy_request(request, dial, _target(request), remote.host, added)


def _target(request: Request) -> str:
    path = quote(request.path, safe="/:@!$&'()*+,;=~")
    options = query.write(request.query)
    return f"{path}?{options}" if options else path
