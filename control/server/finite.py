"""Version, discovery, OpenAPI, metrics, token issuer documents: the finite routes, as a FastAPI application.

It runs behind the pipeline like the resource paths, so it is authenticated and authorised; see `control.server.mounted`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from control.auth.token_signer import TokenSigner
from control.http import encodings
from control.http.negotiate import Aggregated, MediaTypeOptions, aggregated_version, negotiate
from control.server.discovery import Discovery
from control.server.health import Health
from control.server.version import version
from kube import errors
from kube.exposition import CONTENT_TYPE


def build(
    health: Health, discovery: Discovery, signer: TokenSigner, metrics: Mapping[str, Callable[[], bytes]]
) -> FastAPI:
    """Make the application; `metrics` are documents by path, in the exposition format."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        status = errors.method_not_allowed() if error.status_code == 405 else errors.path_not_found()
        if error.status_code == 406:
            status = errors.StatusError(406, "NotAcceptable", error.detail)
        return _json(status.to_status(), status.code)

    @app.get("/version")
    @app.get("/version/")
    async def get_version() -> Response:
        return _document(version())

    @app.get("/{root:path}")
    async def other(root: str, request: Request) -> Response:
        path = "/" + root
        top = root.split("/", 1)[0]
        if top in ("api", "apis"):
            await discovery.prepare()
            return _discovered(discovery, path, request)
        if top == "openapi":
            return await _openapi(path, request, discovery)
        if path in metrics:
            return Response(metrics[path](), media_type=CONTENT_TYPE)
        if path == "/.well-known/openid-configuration":
            return _json(signer.discovery())
        if path == "/openid/v1/jwks":
            return Response(msgspec.json.encode(signer.jwks()), media_type="application/jwk-set+json")
        if path == "/":
            await discovery.prepare()
            return _document({"paths": _paths(health, discovery)})
        raise HTTPException(404)

    return app


def _discovered(discovery: Discovery, path: str, request: Request) -> Response:
    accept = request.headers.get("accept", "")
    aggregated = aggregated_version(accept) if path.rstrip("/") in ("/api", "/apis") else Aggregated()
    found = discovery.document(path, aggregated)
    if found is None:
        raise HTTPException(404)
    data, tag = found
    if not aggregated:
        wanted = _negotiated(accept)
        return Response(encodings.again(data, wanted, "meta_v1"), media_type=wanted.content_type.decode())
    headers = {"ETag": tag, "Vary": "Accept"}
    if request.headers.get("if-none-match") == tag:
        # A cache merges these headers into its entry: they must not describe a body that is missing.
        return Response(status_code=304, headers=headers)
    wanted = negotiate(aggregated.media)
    kind = f"{aggregated.media};g=apidiscovery.k8s.io;v={aggregated};as=APIGroupDiscoveryList"
    return Response(encodings.again(data, wanted, f"apidiscovery_{aggregated}"), media_type=kind, headers=headers)


def _negotiated(accept: str) -> MediaTypeOptions:
    try:
        return negotiate(accept, transform=False)
    except errors.StatusError as error:
        raise HTTPException(error.code, error.message) from error


async def _openapi(path: str, request: Request, discovery: Discovery) -> Response:
    """Answer from `control.openapi.serve`, which is imported at the first request of a schema."""
    try:
        serve = importlib.import_module("control.openapi.serve")
    except ModuleNotFoundError:
        raise HTTPException(404) from None
    found: Response = await serve.answer(path, request, discovery.custom, discovery.resources)
    return found


def _paths(health: Health, discovery: Discovery) -> list[str]:
    paths = {
        "/.well-known/openid-configuration",
        "/api",
        "/apis",
        "/flagz",
        "/metrics",
        "/metrics/slis",
        "/openid/v1/jwks",
        "/statusz",
        "/version",
    }
    paths |= {"/openapi/v2", "/openapi/v3", "/healthz", "/livez", "/readyz"}
    for group, version_name in discovery.by_version:
        paths |= {f"/apis/{group}", f"/apis/{group}/{version_name}"} if group else {f"/api/{version_name}"}
    for root, checks in (("healthz", health.live), ("livez", health.live), ("readyz", health.ready)):
        paths |= {f"/{root}/{name}" for name in checks}
    return sorted(paths)


def _document(value: Any) -> Response:
    """Answer with line breaks, as upstream does here for every client."""
    return Response(msgspec.json.format(msgspec.json.encode(value), indent=2), media_type="application/json")


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
