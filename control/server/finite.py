"""Version, discovery, OpenAPI, metrics, token issuer documents: the finite routes.

They run behind the pipeline like the resource paths, so they are authenticated and authorised; see `control.server.mounted`.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from control.auth.token_signer import TokenSigner
from control.http import encodings
from control.http.exchange import Answer, Handler, Request, Response, error_response
from control.http.negotiate import Aggregated, aggregated_version, negotiate
from control.server.discovery import Discovery
from control.server.health import Health
from control.server.version import version
from kube import errors
from kube.exposition import CONTENT_TYPE


def build(
    health: Health,
    discovery: Discovery,
    signer: TokenSigner,
    metrics: Mapping[str, Callable[[], bytes]],
    pages: Mapping[str, Callable[[Request], Awaitable[Response]]] | None = None,
) -> Handler:
    """Return the handler; `metrics` are documents by path, in the exposition format, `pages` handlers of further paths."""

    async def answer(request: Request) -> Answer:
        try:
            if request.method != "GET":
                raise errors.method_not_allowed()
            return await get(request)
        except errors.StatusError as error:
            return error_response(error)

    async def get(request: Request) -> Response:
        path = request.path
        top = path[1:].partition("/")[0]
        if top in ("api", "apis"):
            await discovery.prepare()
            return _discovered(discovery, request)
        if top == "openapi":
            return await _openapi(request, discovery)
        if path in ("/version", "/version/"):
            return _document(version())
        if pages is not None and path in pages:
            return await pages[path](request)
        if path in metrics:
            return Response(200, metrics[path](), CONTENT_TYPE.encode())
        if path == "/.well-known/openid-configuration":
            return Response(200, msgspec.json.encode(signer.discovery()))
        if path == "/openid/v1/jwks":
            return Response(200, msgspec.json.encode(signer.jwks()), b"application/jwk-set+json")
        if path == "/":
            await discovery.prepare()
            return _document({"paths": _paths(health, discovery)})
        raise errors.path_not_found()

    return answer


def _discovered(discovery: Discovery, request: Request) -> Response:
    accept = request.header(b"accept")
    aggregated = aggregated_version(accept) if request.path.rstrip("/") in ("/api", "/apis") else Aggregated()
    found = discovery.document(request.path, aggregated)
    if found is None:
        raise errors.path_not_found()
    data, tag = found
    if not aggregated:
        wanted = negotiate(accept, transform=False)
        return Response(200, encodings.again(data, wanted, "meta_v1"), wanted.content_type)
    headers = [(b"etag", tag.encode()), (b"vary", b"Accept")]
    if request.header(b"if-none-match") == tag:
        # A cache merges these headers into its entry: they must not describe a body that is missing.
        return Response(304, headers=headers)
    wanted = negotiate(aggregated.media)
    kind = f"{aggregated.media};g=apidiscovery.k8s.io;v={aggregated};as=APIGroupDiscoveryList"
    return Response(200, encodings.again(data, wanted, f"apidiscovery_{aggregated}"), kind.encode(), headers)


async def _openapi(request: Request, discovery: Discovery) -> Response:
    """Answer from `control.openapi.serve`, which is imported at the first request of a schema."""
    try:
        serve = importlib.import_module("control.openapi.serve")
    except ModuleNotFoundError:
        raise errors.path_not_found() from None
    found: Response = await serve.answer(request, discovery.custom, discovery.resources)
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
    return Response(200, msgspec.json.format(msgspec.json.encode(value), indent=2))
