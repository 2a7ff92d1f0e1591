"""Answers /apis if there are extensions: the local document with their groups, plain or aggregated.

Each form is built once for a state of the local document and of the extensions, outside the event loop, and kept as gzip.
Aggregated discovery has an ETag of all of it, as upstream's (aggregated/handler.go); the plain list has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from control.aggregation import documents
from control.aggregation.documents import ServedVersion
from control.aggregation.remote import Remote
from control.http import encodings
from control.http.exchange import Answer, Handler, Request, Response
from control.http.negotiate import Aggregated, MediaTypeOptions, aggregated_version, negotiate
from control.http.pieces import whole
from control.openapi.zipped_documents import ZippedDocuments, unzipped

_ACCEPT, _KNOWN = b"accept", b"if-none-match"


class MergedDiscovery:
    """The merged documents over the local handler."""

    def __init__(self, local: Handler) -> None:
        self._local = local
        self._zipped = ZippedDocuments()

    async def answer(self, request: Request, remotes: Sequence[Remote]) -> Answer:
        """Answer a GET of /apis; the remotes are in the order in which clients are to see them."""
        version = aggregated_version(request.header(_ACCEPT))
        wanted = negotiate(version.media) if version else negotiate(request.header(_ACCEPT), transform=False)
        local = await self._local_answer(request, version)
        if not isinstance(local, Response) or local.status != 200:
            return local
        body, user = whole(local.body), request.user.name
        served = [ServedVersion.of(remote) for remote in remotes]
        own = next((value for name, value in local.headers if name.lower() == b"etag"), body)
        etag = _etag(own, served)
        headers = [header for header in local.headers if header[0].lower() != b"etag"]
        if version:
            headers.append((b"etag", f'"{etag}"'.encode()))
            if request.headers.get(_KNOWN, b"").decode("latin-1") == f'"{etag}"':
                return Response(304, headers=headers)
        kind = wanted.content_type
        if version:
            kind = f"{version.media};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList".encode()
        name = f"{version} {wanted.content_type.decode()}"
        zipped = await self._zipped.get(user, name, etag, lambda: _merged(body, served, version, wanted))
        if b"gzip" in request.headers.get(b"accept-encoding", b"") and not request.pretty:
            headers += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
            return Response(200, zipped, kind, headers)
        return Response(200, await unzipped(user, zipped), kind, headers)

    async def _local_answer(self, request: Request, version: Aggregated) -> Answer:
        """Return the local document as JSON, whatever the client's conditions."""
        asked = {name: request.headers.pop(name) for name in (_ACCEPT, _KNOWN) if name in request.headers}
        request.headers[_ACCEPT] = b"application/json"
        if version:
            request.headers[_ACCEPT] += f";g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList".encode()
        try:
            return await self._local(request)
        finally:
            del request.headers[_ACCEPT]
            request.headers.update(asked)


def _etag(local: bytes, served: Sequence[ServedVersion]) -> str:
    digest = hashlib.sha512(local)
    for each in served:
        digest.update(msgspec.json.encode([each.place, each.current, each.digest]))
    return digest.hexdigest().upper()


def _merged(local: bytes, served: Sequence[ServedVersion], version: Aggregated, wanted: MediaTypeOptions) -> bytes:
    complete = documents.aggregated if version else documents.groups
    found = complete(msgspec.json.decode(local), served)
    module, kind = (f"apidiscovery_{version}", "APIGroupDiscoveryList") if version else ("meta_v1", "APIGroupList")
    return encodings.write(found, wanted, module, kind)
