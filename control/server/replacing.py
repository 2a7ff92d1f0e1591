"""Decoding of the body of a PUT; the helper process decodes large bodies, as for a create.

Decoding a large body is one call that keeps the interpreter's lock to its end, which in a thread blocks the event
loop too. Custom kinds and versions that are converted need this process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from control.decoding.decode import directive
from control.event_loop import offload
from control.event_loop.weight import weight
from control.http.exchange import Request
from control.registry import encoded, metadata
from control.registry.context import Context
from control.registry.conversion import conversion
from control.server.handler_support import HandlerSupport
from control.server.helper import jobs
from kube.json_object import Object
from kube.resources import Resource


class Replacement:
    """New state of an object, of the resource `stored`, and the UID that it names."""

    def __init__(
        self, stored: Resource, uid: str | None, first: Object | None, again: Callable[[], Awaitable[Object]]
    ) -> None:
        self.stored, self.uid, self._first, self._again = stored, uid, first, again

    async def take(self) -> Object:
        """Return the new state as a dict to change. Conflicts are rare, so it is decoded again for each further call."""
        first, self._first = self._first, None
        return first if first is not None else await self._again()


async def read(server: HandlerSupport, request: Request, resource: Resource, context: Context) -> Replacement:
    """Read the body of an update; raises 400, 413, 415."""
    body, kind = await request.body(server.max_body), request.header(b"content-type")
    context.size = request.weight
    namespace, name = request.info.namespace if resource.namespaced else "", request.info.name
    if len(body) >= offload.LARGE and encoded.alone(server.registry.strategy(resource)):
        note = request.note
        if note is not None and note.shows_request:
            await request.document(server.max_body)  # the audit log shows YAML as JSON
        named = encoded.named(resource, server.registry.settings)
        given: tuple[Any, ...] = named, bytes(body), kind, directive(request.option("fieldValidation")), namespace, name
        here = partial(jobs.decode_update, *given)
        data, uid, warnings = await offload.by_helper(request.user.name, "decode_update", *given, instead=here)
        request.warnings += warnings
        size = weight(data)

        async def parse() -> Object:
            parsed: Object = await offload.run(request.user.name, size, msgspec.json.decode, data)
            return parsed

        return Replacement(resource, uid, None, parse)
    converting = conversion(resource)
    stored = resource
    if converting is not None:
        stored, context.requested = converting.stored, resource

    async def decode() -> Object:
        obj = await server.decoded(request, resource)
        meta = obj.setdefault("metadata", {})
        metadata.match_name(meta, name, namespace)
        metadata.match_namespace(resource, meta, namespace)
        return obj if converting is None else converting.to_stored(obj)

    async def decode_again() -> Object:
        warnings = request.warnings[:]
        obj = await decode()
        request.warnings[:] = warnings
        return obj

    first = await decode()
    return Replacement(stored, first["metadata"].get("uid"), first, decode_again)
