"""Bodies as the audit log shows them: JSON values, whichever encoding they were sent in (upstream encodes them again).

What cannot be read, and what is no object (logs, proxied answers), is left out. JSON that this server wrote goes into a line as
it is: a list of a thousand objects takes seconds to be decoded, and the interpreter is held for all of it.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, TypeVar

import msgspec

from control.decoding.decode import YAML_TYPES, media_type
from control.decoding.yaml_body import load_yaml
from control.http.exchange import Request, Response
from control.http.pieces import Body, Pieces, whole
from kube.json_object import Object
from kube.nesting import check_nesting
from kube.resources import by_path
from kube.schema import wire

_YAML = (*YAML_TYPES, "application/apply-patch+yaml")
T = TypeVar("T")
_FIELDS = dict[str, msgspec.Raw]
_BREAKS = re.compile(rb"\n *")
TOGETHER = 32 << 10
"""Bytes of an answer with line breaks that are gone through at once, a fraction of a millisecond."""
MOST_UNPACKED = 16 << 20
"""Bytes of a compressed answer of another server (a pod's, an aggregated API's) that are shown."""


def sent(request: Request) -> Any:
    """Return the value that a request carried, None if there is none to show."""
    info = request.info
    resource = by_path(info.group, info.version, info.resource) if info.is_resource and not info.subresource else None
    expected = (resource.api_version, resource.kind) if resource is not None else ("", "")
    return _value(request.sent, media_type(request.header(b"content-type")), expected)


def compressed(answer: Response) -> bool:
    return (b"content-encoding", b"gzip") in answer.headers


def answered(answer: Response) -> Any:
    """Return the value of an answer that others may have written, None if there is none to show."""
    body = whole(answer.body)
    if compressed(answer):
        unpack = zlib.decompressobj(wbits=31)
        try:
            body = unpack.decompress(body, MOST_UNPACKED)
        except zlib.error:
            return None
        if not unpack.eof:
            return None
    return _value(body, media_type(answer.content_type.decode("latin-1")), ("", ""))


def own(written: Body, content_type: bytes, *, bare: bool) -> Any:
    """Return the value of a body that this server wrote, `bare` without managedFields; None if there is none to show."""
    kind = media_type(content_type.decode("latin-1"))
    if kind != "application/json":
        return _value(whole(written), kind, ("", ""))
    body = written.gathered() if isinstance(written, Pieces) else written
    end = len(body) - body.endswith(b"\n")
    if body.find(b"\n", 0, end) >= 0:
        body = _on_one_line(body)
        end = len(body)
    if bare and b'"managedFields"' in body:
        return _stripped(body)
    return msgspec.Raw(memoryview(body)[:end])


def _on_one_line(body: bytes | bytearray) -> bytes:
    """Return JSON without line breaks and what indents them: in strings they are escaped.

    To go through all of a list at once would hold the interpreter, and with it the event loop.
    """
    found, start = list[bytes](), 0
    while start < len(body):
        end = body.find(b"\n", start + TOGETHER) + 1 or len(body)
        found.append(_BREAKS.sub(b"", body[start:end]))
        start = end
    return b"".join(found)


def _stripped(body: bytes | bytearray) -> Any:
    """Return an object or a list without the managedFields, the rest as it is."""
    fields: dict[str, Any] | None = _read(body, _FIELDS)
    if fields is None:
        return msgspec.Raw(body)
    items = _read(fields["items"], list[msgspec.Raw]) if "items" in fields else None
    if items is not None:
        fields["items"] = [_object_stripped(item) for item in items]
    return _without(fields)


def _object_stripped(item: msgspec.Raw) -> msgspec.Raw:
    fields = _read(item, _FIELDS)
    return item if fields is None else msgspec.Raw(msgspec.json.encode(_without(fields)))


def _without(fields: dict[str, Any]) -> dict[str, Any]:
    metadata = _read(fields["metadata"], _FIELDS) if "metadata" in fields else None
    if metadata is not None and metadata.pop("managedFields", None) is not None:
        fields["metadata"] = metadata
    return fields


def _read(value: bytes | bytearray | msgspec.Raw, shape: type[T]) -> T | None:
    """Return JSON's parts, undecoded; None if it has another shape, or nests too deep."""
    try:
        return msgspec.json.decode(value, type=shape)
    except (msgspec.ValidationError, RecursionError):
        return None


def _value(body: bytes, kind: str, expected: tuple[str, str]) -> Any:
    if not body:
        return None
    try:
        if kind == wire.MEDIA_TYPE or body.startswith(wire.MAGIC):
            return _message(body, expected)
        if kind in _YAML:
            return load_yaml(body, ours=True)
        check_nesting(body)
        return msgspec.json.decode(body)
    except (ValueError, RecursionError, UnicodeDecodeError):
        return None


def _message(body: bytes, expected: tuple[str, str]) -> Object:
    api_version, kind, message = wire.open_envelope(body)
    api_version, kind = api_version or expected[0], kind or expected[1]
    group, _, version = api_version.rpartition("/")
    module = f"{group.partition('.')[0] or 'core'}_{version}"
    item = kind.removesuffix("List")
    if item != kind and not wire.known(module, kind):
        found = wire.decode_list(message, module if wire.known(module, item) else "meta_v1", item)
    else:
        found = wire.decode(message, module if wire.known(module, kind) else "meta_v1", kind)
    return {"kind": kind, "apiVersion": api_version, **found}
