"""One value as an answer in the encoding that a client accepts: Statuses, reviews, discovery documents.

Objects of resources go another way (`control.server.forms`), which keeps their bytes. A client whose Accept names nothing that
is served gets an error, and the error itself comes as JSON, as upstream's does.
"""

from __future__ import annotations

import msgspec

from control.http.negotiate import PLAIN, MediaTypeOptions, negotiate
from control.http.yaml_answer import dump_yaml
from kube.errors import StatusError
from kube.json_object import Object
from kube.schema import wire_encode


def write(value: Object, wanted: MediaTypeOptions, module: str, kind: str) -> bytes:
    """Return a value's bytes; `module` and `kind` name its type for protobuf ("meta_v1", "Status")."""
    if wanted.protobuf:
        message = wire_encode.framed(wire_encode.encode(value, module, kind))
        return wire_encode.envelope(value.get("apiVersion", ""), value.get("kind", ""), message)
    if wanted.yaml:
        return dump_yaml(value)
    return msgspec.json.encode(value)


def again(data: bytes, wanted: MediaTypeOptions, module: str) -> bytes:
    """Return a JSON document in another encoding; its kind names its type in `module`."""
    if wanted.protobuf or wanted.yaml:
        value: Object = msgspec.json.decode(data)
        return write(value, wanted, module, value["kind"])
    return data


def status_bytes(status: Object, accept: str) -> tuple[bytes, bytes]:
    """Return a Status and its content type, as JSON for clients that accept no offered type."""
    wanted = PLAIN
    if "protobuf" in accept or "yaml" in accept:
        try:
            wanted = negotiate(accept, transform=False)
        except StatusError:
            wanted = PLAIN
    if wanted == PLAIN:
        return msgspec.json.encode(status) + b"\n", wanted.content_type
    return write(status, wanted, "meta_v1", "Status"), wanted.content_type
