"""A PATCH request as a change: selects one of the four patch types, and decodes the result into the object's type.

`change` applies the patch to whatever the object is at that moment, so that it can be retried when somebody else was
faster. Where the patch names no resourceVersion it fits every state. A small patch is read once. A large one is read each time,
when its turn has come: of those that wait for theirs only the bytes are kept. A JSON patch that copies counts as large: a
hundred operations make a large object of a small one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from control.decoding.decode import Decoder, FieldValidation, directive, load_json, media_type
from control.decoding.decode_errors import json_type, least_keys, most_keys, strict_problems
from control.decoding.numbers import normalized
from control.event_loop import offload
from control.event_loop.weight import weight
from control.http.exchange import Request
from control.patch.json_patch import apply_json_patch
from control.patch.merge_patch import apply_merge_patch
from control.patch.strategic import strategic_merge
from control.registry.context import Context
from control.registry.served import served
from control.server.apply_patch import Change, read_apply
from control.server.patch_refusals import converter_message, decoder_message, go_text, unprocessable
from kube import errors
from kube.client import APPLY, JSON_PATCH, MERGE, STRATEGIC
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource
from kube.value_count import TooManyValues


class Patch(msgspec.Struct, frozen=True):
    """`change` maps the present object to the patched one; `creates`: an absent object is made (apply)."""

    change: Callable[[Object | None], Awaitable[Object]]
    creates: bool = False


async def read(
    request: Request,
    body: bytes,
    resource: Resource,
    decoder: Decoder,
    context: Context,
    now: datetime,
    subresource: str = "",
) -> Patch:
    """Read a patch; raises 415 for a kind that is not known, and 400 for one that cannot be read, a large one at its turn."""
    kind = _kind(request, resource)
    if kind == APPLY:
        context.operation = "Apply"
    user, size = context.user.name, weight(body, request.header(b"content-type"))
    reading = partial(_read, kind, request, body, resource, decoder, context, now, subresource)
    if kind == JSON_PATCH and _copies(body):
        size = offload.LARGE
        context.size = max(context.size, size)
    if size >= offload.LARGE:
        change = _large(user, request, reading)
    else:
        small = await offload.run(user, size, reading)

        async def change(old: Object | None) -> Object:
            return await offload.run(user, context.size, small, old)

    return Patch(change, kind == APPLY)


def _copies(body: bytes) -> bool:
    """Return whether a JSON patch may have "copy" operations, of which JSON allows other spellings with escapes."""
    return b"copy" in body or b"\\" in body


def _large(user: str, request: Request, reading: Callable[[], Change]) -> Callable[[Object | None], Awaitable[Object]]:
    warned = False

    def work(old: Object | None) -> Object:
        return reading()(old)

    async def change(old: Object | None) -> Object:
        nonlocal warned
        before = len(request.warnings)
        obj = await offload.run(user, offload.LARGE, work, old)
        if warned:
            del request.warnings[before:]
        warned = True
        return obj

    return change


def _kind(request: Request, resource: Resource) -> str:
    """Return a patch's media type; raises 415, and 422 for an option that it does not take."""
    kind = media_type(request.header(b"content-type"))
    if kind == APPLY:
        if not request.option("fieldManager"):
            problem = errors.required("fieldManager", "is required for apply patch")
            raise errors.invalid("meta.k8s.io", "PatchOptions", "", [problem])
        return kind
    accepted = served(resource).patch_types
    if kind not in accepted:
        raise errors.unsupported_media_type(", ".join(accepted))
    if request.flag("force") is not None:
        problem = errors.forbidden_field("force", "may not be specified for non-apply patch")
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", [problem])
    return kind


def _read(
    kind: str,
    request: Request,
    body: bytes,
    resource: Resource,
    decoder: Decoder,
    context: Context,
    now: datetime,
    subresource: str,
) -> Change:
    if kind == APPLY:
        return read_apply(request, body, resource, decoder, context, now, subresource)
    validation = directive(request.option("fieldValidation"))
    try:
        patch = normalized(load_json(body))
    except TooManyValues as error:
        raise errors.too_much(str(error)) from error
    except ValueError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error
    if kind == JSON_PATCH:
        patch = _operations(patch, validation)
    reported: list[str] = []
    repeated = [] if validation == "Ignore" else _strict_problems(kind, body, patch)

    def change(old: Object | None) -> Object:
        if old is None:
            raise errors.not_found(resource.group, resource.plural, request.info.name)
        if kind == JSON_PATCH:
            patched = apply_json_patch(old, patch)
        elif kind == MERGE:
            patched = apply_merge_patch(old, patch)
        else:
            patched = strategic_merge(old, patch, resource.type)
        if not isinstance(patched, dict):
            raise errors.bad_request("the patched object is no object")
        found: list[str] = []
        try:
            if kind != STRATEGIC:
                _check_kind(patched, resource)
            obj = decoder.convert(patched, "Warn" if validation == "Strict" else validation, found)
        except StatusError as error:
            if error.code != 400:
                raise
            if kind == STRATEGIC:
                raise unprocessable(go_text(patch), converter_message(error, patched, resource.type)) from error
            raise unprocessable(_text(patched), decoder_message(error, patched, resource.type)) from error
        found = repeated + found
        if found and validation == "Strict":
            shown = go_text(patch) if kind == STRATEGIC else _text(patched)
            raise unprocessable(shown, "strict decoding error: " + ", ".join(found))
        if not reported:
            reported.extend(found)
            request.warnings.extend(found)
        return _keep_identity(obj, old, request, resource)

    return change


def _strict_problems(kind: str, body: bytes, patch: Any) -> list[str]:
    """Return duplicate fields of a patch, and unknown fields of a JSON patch's operations."""
    if kind != JSON_PATCH:
        # Most patches have no duplicate, which is cheaper to find out than where one is.
        return strict_problems(body, ()) if most_keys(body) > least_keys(patch) else []
    unknown = [
        f"[{index}].{key}"
        for index, operation in enumerate(patch if isinstance(patch, list) else ())
        for key in (operation if isinstance(operation, dict) else ())
        if key not in _OPERATION
    ]
    return [f"json patch {problem}" for problem in strict_problems(body, unknown)]


_OPERATION = frozenset({"op", "path", "from", "value"})


def _operations(patch: Any, validation: FieldValidation) -> list[Any]:
    """Return a JSON patch's operations; raises 400 with the text of upstream's decoder for values of wrong types."""
    strict = validation != "Ignore"
    prefix, whole, each = (
        ("error decoding patch: ", "[]handlers.jsonPatchOp", "handlers.jsonPatchOp")
        if strict
        else ("", "jsonpatch.Patch", "jsonpatch.Operation")
    )
    if not isinstance(patch, list | None):
        raise errors.bad_request(f"{prefix}json: cannot unmarshal {json_type(patch)} into Go value of type {whole}")
    for operation in patch or ():
        if not isinstance(operation, dict | None):
            found = json_type(operation)
            raise errors.bad_request(f"{prefix}json: cannot unmarshal {found} into Go value of type {each}")
        for name, value in (operation or {}).items() if strict else ():
            if name in ("op", "path", "from") and not isinstance(value, str | None):
                into = f"Go struct field jsonPatchOp.{name} of type string"
                raise errors.bad_request(f"{prefix}json: cannot unmarshal {json_type(value)} into {into}")
    return patch or []


def _text(patched: Object) -> str:
    return msgspec.json.encode(patched, order="sorted").decode()


def _check_kind(patched: Object, resource: Resource) -> None:
    """Refuse what a patch made another kind or version of."""
    kind, version = patched.get("kind", resource.kind), patched.get("apiVersion", resource.api_version)
    if (kind, version) != (resource.kind, resource.api_version):
        given, own = f"{str(version).rpartition('/')[2]}.{kind}", f"{resource.version}.{resource.kind}"
        raise errors.bad_request(f"patch: converting ({given}) to ({own}): unknown conversion")


def _keep_identity(obj: Object, old: Object, request: Request, resource: Resource) -> Object:
    meta = obj.setdefault("metadata", {})
    name = request.info.name
    if meta.get("name") not in (None, "", name):
        raise errors.bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    meta["name"] = name
    namespace = old["metadata"].get("namespace")
    if namespace and meta.get("namespace") not in (None, "", namespace):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if namespace:
        meta["namespace"] = namespace
    return obj
