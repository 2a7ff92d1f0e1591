"""Schemas of the served types, read on demand: with descriptions from the package kubernetes-validate where it is installed,
else without from a file that scripts/models generates from it.

The package contains upstream's OpenAPI definitions in a form for validators: every optional type may also be null,
references lead to $defs, and apiVersion and kind are pinned. Here that is reverted, for v2 or for v3. Nothing is cached: each
client requests a document once and caches it, and the definitions would take 10 MB.
"""

from __future__ import annotations

import gzip
import importlib.resources
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec

from control.openapi import resource_metrics
from kube.json_object import Object

Style = Literal["v2", "v3"]

VERSION = "v1.36.0"
_FROM = "#/$defs/"
_TO = {"v2": "#/definitions/", "v3": "#/components/schemas/"}
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"


def load() -> dict[str, Object]:
    """Read all definitions, by name (io.k8s.api.core.v1.Pod)."""
    described = _described_definitions()
    found: dict[str, Object] = msgspec.json.decode(
        gzip.decompress(importlib.resources.files(__package__).joinpath("definitions.json.gz").read_bytes())
        if described is None
        else described.read_bytes()
    )
    return (found if described is None else found["$defs"]) | resource_metrics.schemas()


def _described_definitions() -> Path | None:
    """Return the package's file, None if it is not installed in this version."""
    spec = find_spec("kubernetes_validate")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "kubernetes-json-schema" / f"{VERSION}-local" / "_definitions.json"
    return file if file.exists() else None


def convert(name: str, schema: Object, style: Style) -> Object:
    """Return one definition as upstream publishes it."""
    if name == _QUANTITY:
        return _described(
            schema, {"type": "string"} if style == "v2" else {"oneOf": [{"type": "string"}, {"type": "number"}]}
        )
    if name == _INT_OR_STRING:
        v3 = {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
        return _described(schema, {"format": "int-or-string", "type": "string"} if style == "v2" else v3)
    converted: Object = _convert(schema, style)
    if "x-kubernetes-group-version-kind" in schema:
        for pinned in ("apiVersion", "kind"):
            converted.get("properties", {}).get(pinned, {}).pop("enum", None)
    return converted


def _described(schema: Object, converted: Object) -> Object:
    return {"description": schema["description"], **converted} if "description" in schema else converted


def _convert(schema: Object, style: Style) -> Object:
    out: Object = {}
    for key, value in schema.items():
        if key == "type" and isinstance(value, list):
            out["type"] = next(t for t in value if t != "null")
        elif key == "$ref":
            reference = _TO[style] + value.removeprefix(_FROM)
            # In v3 nothing may stand beside a $ref, so upstream wraps it.
            if style == "v3" and len(schema) > 1:
                out["allOf"] = [{"$ref": reference}]
            else:
                out["$ref"] = reference
        elif key == "properties":
            out["properties"] = {name: _convert(sub, style) for name, sub in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = _convert(value, style)
        elif key == "enum":
            out["enum"] = [v for v in value if v is not None]
        elif key != "$schema":
            out[key] = value
    return out


def closure(names: Iterable[str], definitions: dict[str, Object]) -> list[str]:
    """Return the names and all that they refer to, sorted."""
    found: set[str] = set()
    waiting = [name for name in names if name in definitions]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(definitions[name])
    return sorted(found)


def _references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        here = [schema["$ref"].removeprefix(_FROM)] if isinstance(schema.get("$ref"), str) else []
        return here + [name for value in schema.values() for name in _references(value)]
    if isinstance(schema, list):
        return [name for value in schema for name in _references(value)]
    return []
