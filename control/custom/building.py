"""A definition compiled into what is served of it: a row for each version, with its schema, decoder, strategy and shape."""

from __future__ import annotations

from typing import Any

import msgspec

from control.custom.conversion import Reader, Versions, Webhooks
from control.custom.decoder import CustomDecoder
from control.custom.resource import CustomResource
from control.custom.strategy import CustomStrategy
from control.patch.schema import of_custom
from control.schemas import rules
from control.schemas.schema import Schema, compile_root

Object = dict[str, Any]


def build(definition: Object, webhooks: Webhooks) -> dict[str, CustomResource]:
    """Compile a definition into its served versions."""
    spec = definition["spec"]
    names = (definition.get("status") or {}).get("acceptedNames") or spec["names"]
    if spec.get("preserveUnknownFields"):
        return {}
    schemas: dict[str, Schema] = {
        v["name"]: compile_root((v.get("schema") or {}).get("openAPIV3Schema")) for v in spec["versions"]
    }
    versions = Versions(definition, schemas, webhooks)
    found: dict[str, CustomResource] = {}
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        resource = CustomResource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            "",
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            subresources=tuple(name for name in ("status", "scale") if name in subresources),
            singular_name=names.get("singular") or names["kind"].lower(),
            list_kind_name=names.get("listKind") or names["kind"] + "List",
            definition=definition,
        )
        parts, schema = resource.parts, schemas[version["name"]]
        parts.schema = schema
        parts.decoder = CustomDecoder(schema, resource.api_version, resource.kind)
        parts.strategy = CustomStrategy(
            resource, version, schema, Reader(versions, version["name"]), rules.build(schema)
        )
        parts.shape = of_custom(msgspec.json.encode(schema.source).decode())
        found[version["name"]] = resource
    return found
