"""Compiles a CustomResourceDefinition to served resources, one for each version."""

from __future__ import annotations

from control.custom.conversion import Versions
from control.custom.resource import CustomResource
from control.custom.webhooks import Webhooks
from control.schemas.schema import Schema, compile_root
from kube.json_object import Object


def build(definition: Object, webhooks: Webhooks) -> dict[str, CustomResource]:
    """Compile a definition into its served versions."""
    spec = definition["spec"]
    if spec.get("preserveUnknownFields"):
        return {}
    schemas: dict[str, Schema] = {
        v["name"]: compile_root((v.get("schema") or {}).get("openAPIV3Schema")) for v in spec["versions"]
    }
    versions = Versions(definition, schemas, webhooks)
    found: dict[str, CustomResource] = {}
    for version in spec["versions"]:
        if version.get("served"):
            found[version["name"]] = CustomResource(definition, version, versions, found)
    return found
