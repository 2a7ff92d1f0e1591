"""Functions that the helper process executes: arguments and results are bytes and plain values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from control.aggregation import openapi_v2
from control.decoding.decode import FieldValidation
from control.http.negotiate import MediaTypeOptions
from control.registry import encoded, metadata, updating
from control.registry.served import BuiltInResource
from control.registry.strategy_context import Settings
from control.server.forms import Form
from control.storage.entry import Entry
from kube import resources
from kube.clock import SYSTEM


@functools.cache
def _resource(
    group: str,
    version: str,
    plural: str,
    ranges: tuple[str, ...],
    low: int,
    high: int,
    shared: bool,
    gates: tuple[str, ...],
    balanced: str,
    api_port: int,
) -> BuiltInResource:
    resource = resources.by_path(group, version, plural)
    assert resource is not None
    ports = range(low, high)
    settings = Settings(ranges, ports, shared, gates=frozenset(gates), load_balancer_ports=balanced, api_port=api_port)
    return BuiltInResource(resource, settings)


def _named(name: list[Any]) -> BuiltInResource:
    group, version, plural, ranges, low, high, shared, gates, balanced, api_port = name
    return _resource(group, version, plural, tuple(ranges), low, high, shared, tuple(gates), balanced, api_port)


def begin_create(
    name: list[Any],
    body: bytes,
    content_type: str,
    validation: FieldValidation,
    namespace: str,
    manager: str,
    now: datetime,
) -> encoded.Begun:
    """Decode the body of a create and fill in what comes before admission; raises StatusError."""
    resource, warnings = _named(name), list[str]()
    obj = resource.decoder.decode(body, content_type, validation, warnings)
    return encoded.begin(resource.strategy, namespace, obj, manager, now, warnings)


def decode_update(
    name: list[Any], body: bytes, content_type: str, validation: FieldValidation, namespace: str, of: str
) -> tuple[bytes, str | None, list[str]]:
    """Decode the body of an update of the object `of`; returns it as JSON, its UID and warnings, raises StatusError."""
    resource, warnings = _named(name), list[str]()
    obj = resource.decoder.decode(body, content_type, validation, warnings)
    meta = obj.setdefault("metadata", {})
    metadata.match_name(meta, of, namespace)
    metadata.match_namespace(resource, meta, namespace)
    return msgspec.json.encode(obj), meta.get("uid"), warnings


def finish_create(name: list[Any], namespace: str, data: bytes, dry_run: bool) -> encoded.Finished:
    """Prepare and validate a new object as admission left it; raises StatusError."""
    return encoded.finish(_named(name).strategy, namespace, data, dry_run)


def validate_update(name: list[Any], data: bytes, old: bytes, subresource: str, given: str) -> list[str]:
    """Validate a changed object against what it was; returns warnings, raises StatusError."""
    return updating.validate_encoded(_named(name).strategy, data, old, subresource, given)


def show_items(
    name: list[Any], wanted: dict[str, Any], include: str, pretty: bool, objects: list[bytes]
) -> list[bytes]:
    """Write items of a collection in the form that a client wants."""
    strategy = _named(name).strategy
    entries = [Entry("", 0, data, strategy.fields) for data in objects]
    return Form(MediaTypeOptions(**wanted), strategy, include, SYSTEM, pretty=pretty).items(entries)


def openapi_part(body: bytes, group: str, version: str) -> tuple[tuple[bytes, str] | None, str]:
    """Return an extension's part of the OpenAPI v2 document, None without one, and why it cannot be used."""
    try:
        return openapi_v2.build(body, group, version), ""
    except openapi_v2.Unusable as error:
        return None, str(error)


JOBS: dict[str, Callable[..., Any]] = {
    "begin_create": begin_create,
    "decode_update": decode_update,
    "finish_create": finish_create,
    "validate_update": validate_update,
    "show_items": show_items,
    "openapi_part": openapi_part,
}
