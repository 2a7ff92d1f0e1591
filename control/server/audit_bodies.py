"""Bodies as the audit log shows them: JSON values, whichever encoding they were sent in (upstream encodes them anew).

What cannot be read, and what is no object (logs, proxied answers), is left out.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import msgspec

from control.server.decode import YAML_TYPES, media_type
from control.server.exchange import Request, Response
from control.server.yaml_body import load_yaml
from kube.resources import by_path
from kube.schema import wire

_YAML = (*YAML_TYPES, "application/apply-patch+yaml")
Object = dict[str, Any]


def sent(request: Request) -> Any:
    """Return the value that a request carried, None where there is none to show."""
    info = request.info
    resource = by_path(info.group, info.version, info.resource) if info.is_resource and not info.subresource else None
    expected = (resource.api_version, resource.kind) if resource is not None else ("", "")
    return _value(request.sent, media_type(request.header(b"content-type")), expected)


def answered(answer: Response) -> Any:
    """Return the value of an answer, None where there is none to show."""
    body = answer.body
    try:
        if (b"content-encoding", b"gzip") in answer.headers:
            body = gzip.decompress(body)
    except (OSError, EOFError, zlib.error):
        return None
    return _value(body, media_type(answer.content_type.decode("latin-1")), ("", ""))


def _value(body: bytes, kind: str, expected: tuple[str, str]) -> Any:
    if not body:
        return None
    try:
        if kind == wire.MEDIA_TYPE or body.startswith(wire.MAGIC):
            return _message(body, expected)
        return load_yaml(body) if kind in _YAML else msgspec.json.decode(body)
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
