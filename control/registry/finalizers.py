"""Validation of finalizers (ValidateFinalizers in apimachinery, ValidateObjectMeta in upstream's core validation)."""

from __future__ import annotations

from kube import errors, names
from kube.errors import FieldError
from kube.resources import RESOURCES, Resource

_STANDARD_FINALIZERS = {
    (resource.group, resource.plural)
    for resource in RESOURCES
    if resource.group
    not in (
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "policy",
    )
}
"""Kinds whose finalizers have a domain or are standard ones: upstream validates them with core's function."""


def validate_finalizers(finalizers: list[str], resource: Resource) -> list[FieldError]:
    """Return the errors of an object's finalizers."""
    where = "metadata.finalizers"
    found = [
        errors.invalid_value(where, finalizer, problem)
        for finalizer in finalizers
        for problem in names.qualified_name(finalizer)
    ]
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        found.append(errors.invalid_value(where, finalizers, detail))
    if (resource.group, resource.plural) in _STANDARD_FINALIZERS:
        found += [
            error for index, name in enumerate(finalizers) for error in finalizer_standard(name, f"{where}[{index}]")
        ]
    return found


def finalizer_standard(name: str, path: str) -> list[FieldError]:
    """Return the error for a finalizer that has no domain and is none of the standard ones."""
    if "/" in name or name in ("kubernetes", "orphan", "foregroundDeletion"):
        return []
    return [errors.invalid_value(path, name, "name is neither a standard finalizer name nor is it fully qualified")]
