"""Defaults and validation of a claim's spec, in a PersistentVolumeClaim, a volume's claim template or a StatefulSet's."""

from __future__ import annotations

from control.registry.checks import Errors, each, label_selector, one_of, quantity
from control.registry.field_values import field_value
from kube import names
from kube.errors import forbidden_field, invalid_value, not_supported, required
from kube.json_object import Object
from kube.quantity import Quantity, QuantityError, canonical, parse, remainder
from kube.volume_binding import CLASS_ANNOTATION, named_class

_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
"""Groups and kinds of sources that a claim may name in its older field."""
_SOURCE_KEYS = ("apiGroup", "kind", "name")
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def class_of(obj: Object) -> str:
    """Return the storage class of a volume or a claim; the annotation of old times goes first."""
    return named_class(_annotations(obj), (obj.get("spec") or {}).get("storageClassName"))


def validate_class_change(obj: Object, old: Object) -> Errors:
    """Check that the annotation stays, unless a claim gets the class that it has there in its field.

    Upstream: validateStorageClassUpgradeFromAnnotation. An empty annotation differs from none where that changes the class:
    upstream lets quotas of a class be evaded by it.
    """
    now, was = _annotations(obj).get(CLASS_ANNOTATION), _annotations(old).get(CLASS_ANNOTATION)
    field, before = ((each.get("spec") or {}).get("storageClassName") for each in (obj, old))
    upgraded = was is not None and before is None and field == was and now in (None, was)
    if upgraded or ((now or "") == (was or "") and (now == was or class_of(obj) == class_of(old))):
        return []
    return [invalid_value(f"metadata.annotations.{CLASS_ANNOTATION}", now or "", "field is immutable")]


def may_get_class(obj: Object, old: Object) -> bool:
    """Return whether a claim without a class in its field may get that one: no annotation names another."""
    field, before = ((each.get("spec") or {}).get("storageClassName") for each in (obj, old))
    return before is None and _annotations(old).get(CLASS_ANNOTATION, field) == field


def _annotations(obj: Object) -> Object:
    return (obj.get("metadata") or {}).get("annotations") or {}


def class_warnings(obj: Object) -> list[str]:
    if CLASS_ANNOTATION not in _annotations(obj):
        return []
    return [
        f'metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use "storageClassName" attribute instead'
    ]


def default_claim(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("volumeMode"):
        spec["volumeMode"] = "Filesystem"
    if not (obj.get("status") or {}).get("phase"):
        obj.setdefault("status", {})["phase"] = "Pending"
    _mirror_sources(spec)


def drop_disabled(spec: Object) -> None:
    """Drop a source in another namespace, which an alpha feature would allow."""
    if (spec.get("dataSourceRef") or {}).get("namespace"):
        spec.pop("dataSourceRef")


def _mirror_sources(spec: Object) -> None:
    """Keep dataSource and dataSourceRef, two names of one thing, the same; a namespaced reference has the new name only."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        if (source.get("apiGroup") or "", source.get("kind")) in _SOURCES:
            spec["dataSourceRef"] = dict(source)
        else:  # as if no source were given (EnforceDataSourceBackwardsCompatibility)
            spec.pop("dataSource")
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = {k: v for k, v in reference.items() if k in ("apiGroup", "kind", "name")}


def validate_access_modes(modes: list[str] | None, path: str) -> Errors:
    if not modes:
        return [required(path, "at least 1 access mode is required")]
    errors = [not_supported(path, mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        errors.append(forbidden_field(path, "may not use ReadWriteOncePod with other access modes"))
    return errors


def positive(size: Quantity, path: str) -> Errors:
    """Check a size, which is greater than zero."""
    try:
        amount = parse(size)
    except QuantityError:
        return quantity(size, path)
    return quantity(size, path) + (
        [] if amount > 0 else [invalid_value(path, canonical(size), "must be greater than zero")]
    )


def validate_claim_spec(spec: Object, path: str) -> Errors:
    """Check what is claimed, of a claim or of a volume's claim template."""
    errors = validate_access_modes(spec.get("accessModes"), f"{path}.accessModes")
    errors += label_selector(spec.get("selector"), f"{path}.selector")
    size, where = field_value(spec, "resources.requests.storage"), f"{path}.resources[storage]"
    if size is None:
        errors.append(required(where))
    else:
        errors += positive(size, where)
    for key in ("storageClassName", "volumeAttributesClassName"):
        if spec.get(key):
            errors += each(f"{path}.{key}", spec[key], names.dns1123_subdomain(spec[key]))
    for key in ("dataSource", "dataSourceRef"):
        if spec.get(key) is not None:
            errors += _validate_source(spec[key], f"{path}.{key}")
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef") or {}
    if source is not None and reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        errors.append(invalid_value(path, f"{path}.dataSource", detail))
    elif source is not None and reference and any(source.get(k) != reference.get(k) for k in _SOURCE_KEYS):
        errors.append(invalid_value(path, f"{path}.dataSource", "must match dataSourceRef"))
    if reference.get("namespace"):
        namespace = reference["namespace"]
        errors += each(f"{path}.dataSourceRef.namespace", namespace, names.dns1123_label(namespace))
    return errors + one_of(spec.get("volumeMode"), ("Block", "Filesystem"), f"{path}.volumeMode", needed=False)


def _validate_source(source: Object, path: str) -> Errors:
    errors = [required(f"{path}.{key}") for key in ("name", "kind") if not source.get(key)]
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid_value(path, kind, detail))
    return errors + (each(f"{path}.apiGroup", group, names.dns1123_subdomain(group)) if group else [])


def claim_warnings(spec: Object, path: str = "spec") -> list[str]:
    """Return warnings about what is claimed: a size with a fraction of a byte."""
    size = field_value(spec, "resources.requests.storage")
    try:
        fractional = size is not None and remainder(parse(size), 1) != 0
    except QuantityError:
        return []
    where = f"{path}.resources.requests[storage]"
    return [f'{where}: fractional byte value "{size}" is invalid, must be an integer'] if fractional else []
