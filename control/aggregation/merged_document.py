"""Answers /openapi/v2 where there are extensions: the local document and their parts, JSON or protobuf, with an ETag of all.

What was made is kept, compressed, until the local document or a part is another one.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import Sequence

import msgspec

from control.aggregation.openapi_v2 import Part, merged
from control.http.exchange import Answer, Handler, Request, Response
from control.http.pieces import whole
from control.openapi import gnostic
from control.openapi.documents import PROTOBUF

_ACCEPT, _ENCODING, _KNOWN = b"accept", b"accept-encoding", b"if-none-match"


class WholeDocument:
    """The merged document over the local handler."""

    def __init__(self, local: Handler) -> None:
        self._local = local
        self._made: dict[bool, tuple[str, bytes]] = {}

    async def answer(self, request: Request, parts: Sequence[Part]) -> Answer:
        """Answer a GET of /openapi/v2."""
        asked = {name: request.headers.pop(name) for name in (_ACCEPT, _ENCODING, _KNOWN) if name in request.headers}
        try:
            local = await self._local(request)
        finally:
            request.headers.update(asked)
        if not isinstance(local, Response) or local.status != 200 or not parts:
            return local
        protobuf = b"proto-openapi.spec.v2" in asked.get(_ACCEPT, b"")
        headers = [h for h in local.headers if h[0].lower() not in (b"etag", b"content-length", b"content-type")]
        own = next((value for name, value in local.headers if name.lower() == b"etag"), b"").decode()
        digest = hashlib.sha256("".join((own, *(part.digest for part in parts))).encode()).hexdigest().upper()
        etag = digest + ("P" if protobuf else "")
        headers.append((b"etag", f'"{etag}"'.encode()))
        if etag in asked.get(_KNOWN, b"").decode("latin-1"):
            return Response(304, headers=headers)
        body = await asyncio.to_thread(self._body, whole(local.body), parts, etag, protobuf)
        if b"gzip" in asked.get(_ENCODING, b""):
            body = await asyncio.to_thread(gzip.compress, body, 1)
            headers.append((b"content-encoding", b"gzip"))
        return Response(200, body, PROTOBUF.encode() if protobuf else b"application/json", headers)

    def _body(self, local: bytes, parts: Sequence[Part], etag: str, protobuf: bool) -> bytes:
        kept = self._made.get(protobuf)
        if kept is not None and kept[0] == etag:
            return zlib.decompress(kept[1])
        document = merged(msgspec.json.decode(local), parts)
        body = gnostic.document(document) if protobuf else msgspec.json.encode(document)
        self._made[protobuf] = etag, zlib.compress(body, 6)
        return body
