"""Resources within custom objects (x-kubernetes-embedded-resource): their metadata are decoded as an object's own are.

As upstream's schemaobjectmeta.Coerce: apiVersion and kind are strings, metadata hold what their type knows and nothing else.
"""

from __future__ import annotations

from typing import Any

import msgspec

from control.decoding import canonical, unknown_fields
from control.decoding.decode_errors import go_message
from control.schemas.schema import Schema
from kube import errors, serialize
from kube.api import meta_v1
from kube.field_path import MOST_PROBLEMS, bounded
from kube.json_object import Object


def decode_metadata(raw: Any, path: str, unknown: list[str]) -> Object:
    """Return metadata as their type has them, and add the paths of other fields; ValueError in Go's words for others.

    `raw` stays as it is.
    """
    if raw is None:
        return {}
    try:
        typed = serialize.convert(raw, meta_v1.ObjectMeta)
    except msgspec.ValidationError as error:
        raise ValueError(go_message(error, raw, meta_v1.ObjectMeta)) from error
    found, _, overflow = unknown_fields.inspect(raw, meta_v1.ObjectMeta)
    if overflow:
        raise ValueError(overflow)
    unknown += [f"{path}.{each}" for each in found[: MOST_PROBLEMS - len(unknown)]]
    result: Object = serialize.to_dict(typed)
    canonical.rewrite(result, meta_v1.ObjectMeta)
    return result


def decode(value: Any, schema: Schema, path: str, unknown: list[str]) -> None:
    """Decode the metadata of what is embedded, in place; ValueError names the first place that cannot be decoded."""
    if isinstance(value, dict):
        if schema.embedded:
            _decode_resource(value, path, unknown)
        if schema.embedded_below:
            for key, part in value.items():
                known = schema.properties.get(key)
                if known is not None:
                    decode(part, known, _child(path, key), unknown)
                elif schema.additional is not None:
                    decode(part, schema.additional, bounded(f"{path}[{key}]"), unknown)
    elif isinstance(value, list) and schema.items is not None and schema.embedded_below:
        for index, part in enumerate(value):
            decode(part, schema.items, f"{path}[{index}]", unknown)


def _decode_resource(value: Object, path: str, unknown: list[str]) -> None:
    for key in ("apiVersion", "kind"):
        if not isinstance(value.get(key, ""), str):
            raise ValueError(str(errors.invalid_value(_child(path, key), value[key], "must be a string")))
    if "metadata" not in value:
        return
    where = _child(path, "metadata")
    try:
        value["metadata"] = decode_metadata(value["metadata"], where, unknown)
    except ValueError as error:
        raise ValueError(str(errors.invalid_value(where, value["metadata"], str(error)))) from error


def _child(path: str, key: str) -> str:
    return bounded(f"{path}.{key}" if path else key)
