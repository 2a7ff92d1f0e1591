"""Conversion of objects stored by upstream's API server to the form in which this server stores them, by kind.

Upstream's server stores CustomResourceDefinitions as v1beta1, and sets a claim's default phase only when it reads one. Pure
functions on a decoded object, which they may modify.
"""

from __future__ import annotations

from collections.abc import Callable

from kube.json_object import Object

_OF_VERSIONS = {
    "validation": "schema",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
"""Fields that v1beta1 has once for all versions of a definition, and their names in each version of v1."""


def convert_upstream(obj: Object) -> Object:
    """Return the object as this server would have stored it, or as it is where it has not the form of its kind."""
    change = _CHANGES.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    try:
        return change(obj) if change else obj
    except (AttributeError, TypeError):
        return obj


def _definition(obj: Object) -> Object:
    spec = obj.get("spec") or {}
    name = spec.pop("version", "")
    versions = spec.get("versions") or [{"name": name, "served": True, "storage": True}]
    for old, new in _OF_VERSIONS.items():
        value = spec.pop(old, None)
        for version in versions:
            if value is not None and version.get(new) is None:
                version[new] = value
    for version in versions:
        columns = version.get("additionalPrinterColumns")
        if columns:
            version["additionalPrinterColumns"] = [_column(column) for column in columns]
    if spec.get("conversion"):
        spec["conversion"] = _conversion(spec["conversion"])
    if not spec.get("preserveUnknownFields"):
        spec.pop("preserveUnknownFields", None)
    return {**obj, "apiVersion": "apiextensions.k8s.io/v1", "spec": {**spec, "versions": versions}}


def _column(column: Object) -> Object:
    return {"jsonPath" if name == "JSONPath" else name: value for name, value in column.items()}


def _conversion(old: Object) -> Object:
    webhook: Object = {}
    if old.get("webhookClientConfig"):
        webhook["clientConfig"] = old["webhookClientConfig"]
    if old.get("conversionReviewVersions"):
        webhook["conversionReviewVersions"] = old["conversionReviewVersions"]
    return {"strategy": old.get("strategy", "None"), **({"webhook": webhook} if webhook else {})}


def _claim(obj: Object) -> Object:
    status = obj.get("status") or {}
    return obj if status.get("phase") else {**obj, "status": {"phase": "Pending", **status}}


_CHANGES: dict[tuple[str, str], Callable[[Object], Object]] = {
    ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"): _definition,
    ("v1", "PersistentVolumeClaim"): _claim,
}
