"""The definitions of metrics.k8s.io, which upstream's documents lack: there an extension server publishes them.

They stand in the form of the definitions that are read from the package, so that both are converted in one way.
"""

from __future__ import annotations

from control.resource_metrics.objects import GROUP, RESOURCES, VERSION
from kube.json_object import Object
from kube.resources import Resource

_PREFIX = f"io.k8s.metrics.pkg.apis.metrics.{VERSION}."
_META = "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1."
_VERSION: Object = {"description": "The version of the schema that this object is written in.", "type": "string"}
_KIND: Object = {"description": "The kind of this object.", "type": "string"}
_USAGE: Object = {
    "description": "What was used, by resource: cpu as the mean over the window, memory as the working set at its end.",
    "type": "object",
    "additionalProperties": {"$ref": "#/$defs/io.k8s.apimachinery.pkg.api.resource.Quantity"},
}
_MOMENT: Object = {
    "timestamp": {
        "description": "The end of the time that the usage is of.",
        "$ref": _META + "Time",
    },
    "window": {
        "description": "How long that time was: it lies between timestamp minus window and timestamp.",
        "$ref": _META + "Duration",
    },
}
_CONTAINERS: Object = {
    "description": "The usage of the pod's running containers.",
    "type": "array",
    "items": {"$ref": f"#/$defs/{_PREFIX}ContainerMetrics"},
    "x-kubernetes-list-map-keys": ["name"],
    "x-kubernetes-list-type": "map",
}


def name(resource: Resource) -> str | None:
    """Return the OpenAPI name of a resource's kind; None for one of another group."""
    return _PREFIX + resource.kind if resource.group == GROUP else None


def schemas() -> dict[str, Object]:
    """Return all definitions by name."""
    own: dict[str, Object] = {"NodeMetrics": {"usage": _USAGE}, "PodMetrics": {"containers": _CONTAINERS}}
    found: dict[str, Object] = {
        _META + "Duration": {"description": "A time span in Go's form, such as 1m30s.", "type": "string"},
        f"{_PREFIX}ContainerMetrics": {
            "description": "What one container uses.",
            "type": "object",
            "required": ["name", "usage"],
            "properties": {
                "name": {"description": "The container's name in its pod.", "type": "string"},
                "usage": _USAGE,
            },
        },
    }
    for resource in RESOURCES:
        subject = resource.kind.removesuffix("Metrics").lower()
        parts = {"metadata": {"description": f"The {subject}'s.", "$ref": _META + "ObjectMeta"}, **_MOMENT}
        found[_PREFIX + resource.kind] = _kind(
            resource.kind, f"What one {subject} uses.", {**parts, **own[resource.kind]}
        )
        items = {
            "metadata": {"description": "The list's.", "$ref": _META + "ListMeta"},
            "items": {
                "description": f"The {subject}s' usage.",
                "type": "array",
                "items": {"$ref": f"#/$defs/{_PREFIX}{resource.kind}"},
            },
        }
        found[f"{_PREFIX}{resource.kind}List"] = _kind(f"{resource.kind}List", f"What {subject}s use.", items)
    return {key.removeprefix("#/$defs/"): schema for key, schema in found.items()}


def _kind(kind: str, description: str, properties: Object) -> Object:
    required = [part for part in properties if part != "metadata"]
    return {
        "description": description,
        "type": "object",
        "required": required,
        "properties": {"apiVersion": _VERSION, "kind": _KIND, **properties},
        "x-kubernetes-group-version-kind": [{"group": GROUP, "kind": kind, "version": VERSION}],
    }
