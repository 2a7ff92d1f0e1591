"""Serves /openapi/v2 with extensions: the local and their documents merged, as JSON or protobuf, with an ETag of all.

What was built is kept as gzip until the local document or a part is another one.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence

import msgspec

from control.aggregation.openapi_v2 import Part, merged
from control.http.exchange import Answer, Handler, Request, Response
from control.http.pieces import whole
from control.openapi import gnostic
from control.openapi.documents import PROTOBUF
from control.openapi.zipped_documents import ZippedDocuments, unzipped

_ACCEPT, _ENCODING, _KNOWN = b"accept", b"accept-encoding", b"if-none-match"
_OF_THE_BODY = frozenset({b"etag", b"content-length", b"content-type", b"content-encoding"})


class WholeDocument:
    """The merged document over the local handler."""

    def __init__(self, local: Handler) -> None:
        self._local = local
        self._zipped = ZippedDocuments()

    async def answer(self, request: Request, parts: Sequence[Part]) -> Answer:
        """Answer a GET of /openapi/v2."""
        if not parts:
            return await self._local(request)
        asked = {name: request.headers.pop(name) for name in (_ACCEPT, _ENCODING, _KNOWN) if name in request.headers}
        request.headers[_ENCODING] = b"gzip"
        try:
            local = await self._local(request)
        finally:
            request.headers.pop(_ENCODING)
            request.headers.update(asked)
        if not isinstance(local, Response) or local.status != 200:
            return local
        protobuf = b"proto-openapi.spec.v2" in asked.get(_ACCEPT, b"")
        headers = [h for h in local.headers if h[0].lower() not in _OF_THE_BODY]
        own = next((value for name, value in local.headers if name.lower() == b"etag"), b"").decode()
        digest = hashlib.sha256("".join((own, *(part.digest for part in parts))).encode()).hexdigest().upper()
        etag = digest + ("P" if protobuf else "")
        headers.append((b"etag", f'"{etag}"'.encode()))
        if etag in asked.get(_KNOWN, b"").decode("latin-1"):
            return Response(304, headers=headers)
        own_body, user = whole(local.body), request.user.name
        name = "v2 protobuf" if protobuf else "v2"
        body = await self._zipped.get(user, name, etag, lambda: _merged(own_body, parts, protobuf=protobuf))
        if b"gzip" in asked.get(_ENCODING, b""):
            headers.append((b"content-encoding", b"gzip"))
        else:
            body = await unzipped(user, body)
        return Response(200, body, PROTOBUF.encode() if protobuf else b"application/json", headers)


def _merged(local: bytes, parts: Sequence[Part], *, protobuf: bool) -> bytes:
    document = merged(msgspec.json.decode(gzip.decompress(local)), parts)
    return gnostic.document(document) if protobuf else msgspec.json.encode(document)
