"""The body of an update as what the object is to become: a large one is decoded by the helper process, as that of a create.

Decoding a large body is one call that keeps the interpreter's lock to its end, which in a thread blocks the event
loop too. Custom kinds and versions that are converted need this process.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import msgspec

from control import offload
from control.decoding.decode import directive
from control.helper import jobs
from control.http.exchange import Request
from control.registry import encoded, metadata
from control.registry.context import Context
from control.registry.conversion import conversion
from control.server.handler_support import HandlerSupport
from kube.resources import Resource


class Replacement(NamedTuple):
    """New state of an object, as JSON of the stored resource, and the UID that it names."""

    stored: Resource
    data: bytes
    uid: str | None


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
        return Replacement(resource, data, uid)
    obj = await server.decoded(request, resource)
    meta = obj.setdefault("metadata", {})
    metadata.match_name(meta, name, namespace)
    metadata.match_namespace(resource, meta, namespace)
    stored = resource
    if (converting := conversion(resource)) is not None:
        stored, obj, context.requested = converting.stored, converting.to_stored(obj), resource
    return Replacement(stored, msgspec.json.encode(obj), meta.get("uid"))
