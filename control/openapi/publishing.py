"""Custom resources in the OpenAPI documents: their definitions' schemas, with what every object has added.

The v3 document shows a schema as it was written. The v2 form knows less, and old clients stumble over more: what v2 cannot
say is left out, and where a field may be null or hold unknown fields, so is what would make a client refuse it
(apiextensions-apiserver's openapi/v2 conversion).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from control.openapi.definitions import Style
from control.registry.served import ServedResource
from kube.json_object import Object
from kube.resources import Resource

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META, LIST_META = f"{_META}ObjectMeta", f"{_META}ListMeta"
REFERENCES = (
    OBJECT_META,
    LIST_META,
    f"{_META}DeleteOptions",
    f"{_META}Status",
    f"{_META}Patch",
    "io.k8s.api.autoscaling.v1.Scale",
)
"""The built-in definitions that documents with custom resources refer to."""
_PLACE = {"v2": "#/definitions/", "v3": "#/components/schemas/"}
_OBJECT, _LIST = "io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.ConfigMapList"
"""The built-in definitions whose apiVersion, kind and metadata are described as those of custom resources are."""
_SHAPE = ("type", "items", "properties", "additionalProperties")
_NOT_IN_V2 = (
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "nullable",
    "default",
    "x-kubernetes-validations",
    "example",
    "externalDocs",
)


def name(resource: Resource) -> str:
    """Return a kind's name in the documents: com.example.stable.v1.CronTab."""
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def identity(resource: ServedResource) -> str:
    """Return a text that changes whenever what is published of a resource does."""
    metadata = resource.definition["metadata"]
    return f"{metadata.get('uid')} {metadata.get('generation')} {resource.version} {resource.kind} {resource.list_kind}"


def schemas(resources: Iterable[ServedResource], style: Style, built_in: Mapping[str, Object]) -> dict[str, Object]:
    """Return the definitions of kinds and their lists, by name; what all objects have is described as in `built_in`."""
    of_object, of_list = _common(OBJECT_META, style, built_in[_OBJECT]), _common(LIST_META, style, built_in[_LIST])
    found: dict[str, Object] = {}
    for resource in resources:
        kind = name(resource)
        found[kind] = _object(resource, style, of_object)
        found[f"{kind}List"] = _list(resource, kind, style, of_list)
    return found


def _common(meta: str, style: Style, like: Object) -> Object:
    """Return the properties that every object has, or every list, with their descriptions if there are any."""

    def described(name: str, schema: Object) -> Object:
        found = like["properties"][name]
        return {"description": found["description"], **schema} if "description" in found else schema

    reference = {"$ref": _PLACE[style] + meta}
    return {
        "apiVersion": described("apiVersion", {"type": "string"}),
        "kind": described("kind", {"type": "string"}),
        "metadata": described("metadata", {"allOf": [reference]} if style == "v3" else reference),
    }


def _gvk(resource: ServedResource, kind: str) -> list[dict[str, str]]:
    return [{"group": resource.group, "kind": kind, "version": resource.version}]


def _object(resource: ServedResource, style: Style, common: Object) -> Object:
    source = resource.schema
    gvk = _gvk(resource, resource.kind)
    if style == "v2" and source.get("x-kubernetes-preserve-unknown-fields"):
        # Fields that are named would make a client of v2 refuse all others.
        return {"type": "object", "x-kubernetes-group-version-kind": gvk}
    shown = _v2(source) if style == "v2" else dict(source)
    properties = {**(shown.get("properties") or {}), **common}
    return {**shown, "type": "object", "properties": properties, "x-kubernetes-group-version-kind": gvk}


def _list(resource: ServedResource, kind: str, style: Style, common: Object) -> Object:
    items = {"$ref": _PLACE[style] + kind}
    properties = {**common, "items": {"description": f"List of {resource.plural}.", "items": items, "type": "array"}}
    return {
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": properties,
        "x-kubernetes-group-version-kind": _gvk(resource, resource.list_kind),
    }


def _v2(source: Object) -> Object:
    found = {key: value for key, value in source.items() if key not in _NOT_IN_V2}
    if source.get("x-kubernetes-int-or-string") or source.get("nullable"):
        return {key: value for key, value in found.items() if key not in _SHAPE}
    if source.get("x-kubernetes-preserve-unknown-fields"):
        return {key: value for key, value in found.items() if key not in _SHAPE[1:]}
    if "properties" in source:
        found["properties"] = {key: _v2(part) for key, part in source["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(source.get(key), dict):
            found[key] = _v2(source[key])
    return found
