"""The HTTP side of the OpenAPI documents: which one is meant, in which form, and whether the client has it already."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from weakref import WeakKeyDictionary

import msgspec
from fastapi import Request, Response
from starlette.exceptions import HTTPException

from control.custom.definitions import Definitions
from control.openapi.documents import PROTOBUF, Documents
from control.resource_metrics.objects import RESOURCES as METRICS
from kube.resources import RESOURCES

EVERYTHING = (*RESOURCES, *METRICS)
_built_in = Documents(EVERYTHING)
_with_custom: WeakKeyDictionary[Definitions, Documents] = WeakKeyDictionary()
"""By server: in a test several live in one process."""
_V3_PROTOBUF = "application/com.github.proto-openapi.spec.v3"


def documents(custom: Definitions | None) -> Documents:
    """Return the documents of a server as of now."""
    if custom is None:
        return _built_in
    found = _with_custom.get(custom)
    if found is None:
        found = _with_custom[custom] = Documents(EVERYTHING)
    found.follow(custom)
    return found


async def answer(path: str, request: Request, custom: Definitions | None = None) -> Response:
    """Answer /openapi/v2, /openapi/v3 and /openapi/v3/{api/v1,apis/group/version}; 404 for what is not served."""
    _documents = documents(custom)
    parts = path.strip("/").split("/")
    accept = request.headers.get("accept", "")
    if parts == ["openapi", "v2"]:
        if "proto-openapi.spec.v2" in accept:
            return await _send(request, _documents.v2_etag() + "P", PROTOBUF, _documents.v2_protobuf)
        return await _send(request, _documents.v2_etag(), "application/json", _documents.v2)
    if parts == ["openapi", "v3"]:
        return Response(msgspec.json.encode(_documents.index()), media_type="application/json")
    if parts[:2] == ["openapi", "v3"]:
        root = "/".join(parts[2:])
        if _V3_PROTOBUF in accept and "json" not in accept and "*/*" not in accept:
            raise HTTPException(406)
        if root not in _documents.index()["paths"]:
            raise HTTPException(404)
        etag = _documents.hash(root)
        if request.query_params.get("hash", etag) != etag:  # a URL that names its content never shows another
            return Response(status_code=301, headers={"Location": f"/openapi/v3/{root}?hash={etag}"})
        return await _send(request, etag, "application/json", lambda: _documents.v3(root) or b"")
    raise HTTPException(404)


async def _send(request: Request, etag: str, kind: str, make: Callable[[], bytes]) -> Response:
    headers = {"ETag": f'"{etag}"', "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-cache, private"}
    if "hash" in request.query_params:
        # The URL names its content, so it may be kept for good.
        headers["Cache-Control"] = "public, immutable"
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    # The largest takes a tenth of a second to make: not on the loop that serves everybody.
    body = await asyncio.to_thread(make)
    if "gzip" in request.headers.get("accept-encoding", ""):
        body = await asyncio.to_thread(gzip.compress, body, 1)
        headers["Content-Encoding"] = "gzip"
    return Response(body, media_type=kind, headers=headers)
