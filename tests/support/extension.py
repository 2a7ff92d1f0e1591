"""An extension API server of a few lines: one kind, kept in a dict, over TLS, that believes only the front proxy.

It serves what the aggregation layer needs (a discovery document, an OpenAPI v3 index), lists, gets, creates and a watch, and
records the reported user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from kube import pki

GROUP, VERSION = "wardle.example.com", "v1alpha1"
ROOT = f"/apis/{GROUP}/{VERSION}"
RESOURCE = {
    "name": "flunders",
    "singularName": "flunder",
    "namespaced": True,
    "kind": "Flunder",
    "verbs": ["create", "get", "list", "watch"],
    "shortNames": ["fl"],
}

LISTED = ROOT + "/namespaces/{namespace}/flunders"
STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
OPERATION: dict[str, Any] = {
    "operationId": "listFlunders",
    "responses": {"200": {"description": "OK"}},
    "x-kubernetes-action": "list",
    "x-kubernetes-group-version-kind": {"group": GROUP, "kind": "Flunder", "version": VERSION},
}
FLUNDER: dict[str, Any] = {
    "description": "A flat fish.",
    "type": "object",
    "properties": {"side": {"description": "Where the eyes are.", "type": "string"}},
    "x-kubernetes-group-version-kind": [{"group": GROUP, "kind": "Flunder", "version": VERSION}],
}


class Extension:
    """`asked` collects (method, path, headers); `port` is where it listens."""

    def __init__(self, authority: pki.KeyPair, front_proxy_ca: Path) -> None:
        self.authority, self._front_proxy_ca = authority, front_proxy_ca
        self.received: list[tuple[str, str, dict[str, str]]] = []
        self.stored: dict[str, dict[str, Any]] = {}
        self.healthy = True
        self.port = 0
        self.changed = asyncio.Event()
        self.answers: dict[str, bytes] = {}
        """Responses by path that replace the true documents."""
        self.silent = False
        """True if documents are asked for in vain: `asked` collects the request, and no answer comes."""
        self.unanswered: tuple[str, ...] = ()
        """Paths of which that is true while `silent` is not set."""

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._note])
        app.router.add_get(ROOT, self._discovery)
        app.router.add_get("/openapi/v2", self._swagger)
        app.router.add_get("/openapi/v3", self._index)
        app.router.add_get(f"/openapi/v3{ROOT}", self._schema)
        app.router.add_get(ROOT + "/namespaces/{namespace}/flunders", self._list)
        app.router.add_post(ROOT + "/namespaces/{namespace}/flunders", self._create)
        app.router.add_get(ROOT + "/namespaces/{namespace}/flunders/{name}", self._get)
        return app

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        subject = dict(pair for rdn in (peer or {}).get("subject", ()) for pair in rdn)
        if subject.get("commonName") != "front-proxy-client":
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        if not self.healthy:
            return web.Response(status=500)
        headers: dict[str, str] = {}
        for name in dict.fromkeys(request.headers):
            headers[name] = ",".join(request.headers.getall(name))
        self.received.append((request.method, request.path_qs, headers))
        if self.silent or request.path in self.unanswered:
            await asyncio.Event().wait()
        if request.path in self.answers:
            return web.Response(body=self.answers[request.path], content_type="application/json")
        found: web.StreamResponse = await handler(request)
        return found

    async def _discovery(self, request: web.Request) -> web.Response:
        document = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
        return web.json_response({**document, "resources": [RESOURCE]})

    async def _index(self, request: web.Request) -> web.Response:
        place = {"serverRelativeURL": f"/openapi/v3{ROOT}?hash=1"}
        return web.json_response({"paths": {ROOT.strip("/"): place}})

    async def _schema(self, request: web.Request) -> web.Response:
        schemas = {"com.example.wardle.Flunder": FLUNDER}
        document = {"openapi": "3.0.0", "info": {"title": "flunders"}, "paths": {LISTED: {"get": OPERATION}}}
        return web.json_response({**document, "components": {"schemas": schemas}})

    async def _swagger(self, request: web.Request) -> web.Response:
        """Answer as the usual library does: with its own health path, meta types and parameters beside what counts."""
        get = {**OPERATION, "parameters": [{"$ref": "#/parameters/pretty"}]}
        get["responses"] = {
            "200": {"description": "OK", "schema": {"$ref": "#/definitions/com.example.wardle.Flunder"}}
        }
        status = {"type": "object", "description": "Not what the main server means by it."}
        flunder = {**FLUNDER, "properties": {**FLUNDER["properties"], "status": {"$ref": f"#/definitions/{STATUS}"}}}
        document = {
            "swagger": "2.0",
            "info": {"title": "flunders", "version": "1"},
            "paths": {LISTED: {"get": get}, "/healthz": {"get": {"responses": {}}}},
            "definitions": {"com.example.wardle.Flunder": flunder, STATUS: status, "com.example.Unused": status},
            "parameters": {"pretty": {"name": "pretty", "in": "query", "type": "string", "uniqueItems": True}},
        }
        return web.json_response(document)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            answer = web.StreamResponse(headers={"Content-Type": "application/json"})
            await answer.prepare(request)
            await self.changed.wait()
            for obj in self.stored.values():
                await answer.write(json.dumps({"type": "ADDED", "object": obj}).encode() + b"\n")
            await answer.write_eof()
            return answer
        head = {"kind": "FlunderList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {"resourceVersion": "1"}}
        return web.json_response({**head, "items": list(self.stored.values())})

    async def _create(self, request: web.Request) -> web.Response:
        obj = await request.json()
        obj["metadata"] |= {"namespace": request.match_info["namespace"], "uid": "u", "resourceVersion": "1"}
        self.stored[obj["metadata"]["name"]] = obj
        self.changed.set()
        return web.json_response(obj, status=201)

    async def _get(self, request: web.Request) -> web.Response:
        found = self.stored.get(request.match_info["name"])
        if found is None:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            return web.json_response({**status, "message": "no such flunder"}, status=404)
        return web.json_response(found)


E = TypeVar("E", bound=Extension)


@contextlib.asynccontextmanager
async def serve(directory: Path, address: str, service: str, front_proxy_ca: Path, kind: type[E]) -> AsyncIterator[E]:
    """Serve an extension at an address of this machine, under a Service's name (NAME.NAMESPACE.svc)."""
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    now = datetime.now(UTC)
    authority = pki.new_ca("extension", now)
    leaf = pki.issue(authority, service, (), usages=(pki.SERVER,), sans=[service], now=now)
    leaf.save(directory, "serving")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(front_proxy_ca))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(directory / "serving.crt", directory / "serving.key")
    found = kind(authority, front_proxy_ca)
    runner = web.AppRunner(found.app(), shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, address, 0, ssl_context=context)
        await site.start()
        found.port = runner.addresses[0][1]
        yield found
    finally:
        await runner.cleanup()


def extension(
    directory: Path, address: str, service: str, front_proxy_ca: Path
) -> contextlib.AbstractAsyncContextManager[Extension]:
    """Serve flunders."""
    return serve(directory, address, service, front_proxy_ca, Extension)
