"""The HTTP side of the OpenAPI documents: selection, encoding and conditional requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import msgspec

from control.custom.definitions import Definitions
from control.http.exchange import Request, Response
from control.openapi.documents import PROTOBUF, Documents
from control.openapi.zipped_documents import ZippedDocuments, unzipped
from control.resource_metrics.objects import RESOURCES as METRICS
from kube import errors
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
    request: Request, custom: Definitions | None = None, resources: Sequence[Resource] = EVERYTHING
) -> Response:
    """Answer /openapi/v2, /openapi/v3 and /openapi/v3/{api/v1,apis/group/version}; raises 404 for what is not served."""
    if custom is not None:
        await custom.prepare()
    _documents = documents(custom, resources)
    parts = request.path.strip("/").split("/")
    accept = request.header(b"accept")
    if parts == ["openapi", "v2"]:
        if "proto-openapi.spec.v2" in accept:
            etag = _documents.v2_etag() + "P"
            return await _send(request, _documents, "v2 protobuf", etag, PROTOBUF, _documents.snapshot().v2_protobuf)
        return await _send(
            request, _documents, "v2", _documents.v2_etag(), "application/json", _documents.snapshot().v2
        )
    if parts == ["openapi", "v3"]:
        return Response(200, msgspec.json.encode(_documents.index()))
    if parts[:2] == ["openapi", "v3"]:
        root = "/".join(parts[2:])
        if _V3_PROTOBUF in accept and "json" not in accept and "*/*" not in accept:
            raise errors.StatusError(406, "NotAcceptable", "Not Acceptable")
        if root not in _documents.index()["paths"]:
            raise errors.path_not_found()
        etag = _documents.hash(root)
        if "hash" in request.query and request.option("hash") != etag:
            # A URL that names its content never shows another.
            return Response(301, headers=[(b"location", f"/openapi/v3/{root}?hash={etag}".encode())])
        snapshot = _documents.snapshot()
        return await _send(request, _documents, root, etag, "application/json", lambda: snapshot.v3(root) or b"")
    raise errors.path_not_found()


async def _send(
    request: Request, found: Documents, name: str, etag: str, kind: str, make: Callable[[], bytes]
) -> Response:
    # A URL that names its content may be kept for good.
    caching = b"public, immutable" if "hash" in request.query else b"no-cache, private"
    headers = [
        (b"etag", f'"{etag}"'.encode()),
        (b"vary", b"Accept, Accept-Encoding"),
        (b"cache-control", caching),
    ]
    if etag in request.header(b"if-none-match"):
        return Response(304, headers=headers)
    user = request.user.name
    body = await _of(found).get(user, name, etag, make)
    if b"gzip" in request.headers.get(b"accept-encoding", b""):
        headers.append((b"content-encoding", b"gzip"))
    else:
        body = await unzipped(user, body)
    return Response(200, body, kind.encode(), headers)
