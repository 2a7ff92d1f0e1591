"""The HTTP side of the OpenAPI documents: selection, encoding and conditional requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import msgspec
from fastapi import Request, Response
from starlette.exceptions import HTTPException

from control.custom.definitions import Definitions
from control.http.exchange import USER
from control.openapi.documents import PROTOBUF, Documents
from control.openapi.zipped_documents import ZippedDocuments, unzipped
from control.resource_metrics.objects import RESOURCES as METRICS
from kube.resources import RESOURCES, Resource

EVERYTHING = (*RESOURCES, *METRICS)
_built_in = Documents(EVERYTHING)
_with_custom: WeakKeyDictionary[Definitions, Documents] = WeakKeyDictionary()
_zipped: WeakKeyDictionary[Documents, ZippedDocuments] = WeakKeyDictionary()
"""By server: in a test several live in one process."""
_V3_PROTOBUF = "application/com.github.proto-openapi.spec.v3"


def documents(custom: Definitions | None, resources: Sequence[Resource] = EVERYTHING) -> Documents:
    """Return the documents of a server as of now; `resources` are those that are built in."""
    if custom is None:
        return _built_in
    found = _with_custom.get(custom)
    if found is None:
        found = _with_custom[custom] = Documents(resources)
    for root in found.follow(custom):
        _of(found).forget(root)
    return found


def _of(found: Documents) -> ZippedDocuments:
    return _zipped.setdefault(found, ZippedDocuments())


async def answer(
    path: str, request: Request, custom: Definitions | None = None, resources: Sequence[Resource] = EVERYTHING
) -> Response:
    """Answer /openapi/v2, /openapi/v3 and /openapi/v3/{api/v1,apis/group/version}; 404 for what is not served."""
    if custom is not None:
        await custom.prepare()
    _documents = documents(custom, resources)
    parts = path.strip("/").split("/")
    accept = request.headers.get("accept", "")
    if parts == ["openapi", "v2"]:
        if "proto-openapi.spec.v2" in accept:
            etag = _documents.v2_etag() + "P"
            return await _send(request, _documents, "v2 protobuf", etag, PROTOBUF, _documents.snapshot().v2_protobuf)
        return await _send(
            request, _documents, "v2", _documents.v2_etag(), "application/json", _documents.snapshot().v2
        )
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
        snapshot = _documents.snapshot()
        return await _send(request, _documents, root, etag, "application/json", lambda: snapshot.v3(root) or b"")
    raise HTTPException(404)


async def _send(
    request: Request, found: Documents, name: str, etag: str, kind: str, make: Callable[[], bytes]
) -> Response:
    headers = {"ETag": f'"{etag}"', "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-cache, private"}
    if "hash" in request.query_params:
        # The URL names its content, so it may be kept for good.
        headers["Cache-Control"] = "public, immutable"
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    user = request.scope.get(USER, "")
    body = await _of(found).get(user, name, etag, make)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        body = await unzipped(user, body)
    return Response(body, media_type=kind, headers=headers)
