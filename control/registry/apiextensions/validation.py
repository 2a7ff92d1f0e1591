"""Checks of CustomResourceDefinitions: names, versions, scope, subresources, columns, conversion, status, what may change.

Schemas and their rules are checked by `control.custom`. Where all versions have the same schema, upstream's messages speak
of `spec.validation`, the place that it had in the API's older form; the same goes for subresources and columns.
"""

from __future__ import annotations

import re
from typing import Any

from control.registry.admissionregistration.client_config import validate_client, validate_reviews
from control.registry.changes import IMMUTABLE
from control.registry.checks import Errors, FieldErrors, each, one_of, unique
from control.registry.field_values import field_value
from control.registry.rows import Rows
from control.registry.rules import form, require_name
from kube import names
from kube.errors import forbidden_field, invalid_value, required, too_many
from kube.json_object import Object

_VERSION = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
PROTECTED = (".k8s.io", ".kubernetes.io")
APPROVED = "api-approved.kubernetes.io"
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
MOST_SELECTABLE = 8
_NOT_PRESERVED = (
    "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
)


def validate_definition(obj: Object, old: Object | None = None) -> FieldErrors:
    """Return everything wrong with a definition; what an update leaves as it was of a schema is not checked again."""
    spec, metadata = obj.get("spec") or {}, obj.get("metadata") or {}
    group, plural = spec.get("group") or "", (spec.get("names") or {}).get("plural") or ""
    if metadata.get("name") != f"{plural}.{group}":
        yield invalid_value("metadata.name", metadata.get("name", ""), 'must be spec.names.plural+"."+spec.group')
    if not group:
        yield required("spec.group")
    else:
        yield from each("spec.group", group, names.dns1123_subdomain(group))
        if not names.dns1123_subdomain(group) and "." not in group:
            yield invalid_value("spec.group", group, "should be a domain with at least one dot")
    if f".{group}".endswith(PROTECTED) and not (metadata.get("annotations") or {}).get(APPROVED):
        detail = f'protected groups must have approval annotation "{APPROVED}", see https://github.com/kubernetes/enhancements/pull/1111'
        yield required("metadata.annotations[api-approved.kubernetes.io]", detail)
    yield from one_of(spec.get("scope"), ("Cluster", "Namespaced"), "spec.scope")
    if spec.get("preserveUnknownFields"):
        if old is None or not (old.get("spec") or {}).get("preserveUnknownFields"):
            yield invalid_value("spec.preserveUnknownFields", True, _NOT_PRESERVED)
        if (spec.get("conversion") or {}).get("strategy") == "Webhook":
            why = "must be None if spec.preserveUnknownFields is true"
            yield invalid_value("spec.conversion.strategy", "Webhook", why)
    yield from _NAMES(spec.get("names"), "spec.names")
    versions = spec.get("versions") or []
    yield from _versions(versions)
    yield from _conversion(spec.get("conversion") or {})
    before = {v.get("name"): v for v in field_value(old, "spec.versions") or ()}
    yield from _contents(versions, before)


def validate_change(obj: Object, old: Object) -> FieldErrors:
    """Return what is wrong with a change of a definition's spec."""
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    established = any(
        c.get("type") == "Established" and c.get("status") == "True"
        for c in (old.get("status") or {}).get("conditions") or ()
    )
    fixed: list[tuple[str, Any, Any]] = [("spec.group", spec.get("group"), before.get("group"))]
    if established:
        new_names, old_names = spec.get("names") or {}, before.get("names") or {}
        fixed.append(("spec.scope", spec.get("scope"), before.get("scope")))
        fixed.append(("spec.names.kind", new_names.get("kind"), old_names.get("kind")))
        fixed.append(("spec.names.plural", new_names.get("plural"), old_names.get("plural")))
    yield from [invalid_value(path, new, IMMUTABLE) for path, new, was in fixed if new != was]
    present = {v.get("name") for v in spec.get("versions") or ()}
    for index, version in enumerate((old.get("status") or {}).get("storedVersions") or ()):
        if version not in present:
            why = (
                f"missing from spec.versions; {version} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {version} and removes "
                f"{version} from status.storedVersions"
            )
            yield invalid_value(f"status.storedVersions[{index}]", version, why)


def validate_status(obj: Object) -> Errors:
    """Return what is wrong with a definition's status."""
    versions = (obj.get("spec") or {}).get("versions") or ()
    stored = (obj.get("status") or {}).get("storedVersions") or []
    storage = next((v.get("name") for v in versions if v.get("storage")), "")
    errors: Errors = []
    if not stored:
        errors.append(invalid_value("status.storedVersions", stored, "must have at least one stored version"))
    elif storage not in stored:
        errors.append(invalid_value("status.storedVersions", stored, f"must have the storage version {storage}"))
    present = {v.get("name") for v in versions}
    return errors + [
        invalid_value(f"status.storedVersions[{index}]", version, "must appear in spec.versions")
        for index, version in enumerate(stored)
        if version not in present
    ]


def _label(name: str) -> list[str]:
    problems = names.dns1035_label(name)
    return [",".join(problems)] if problems else []


def _mixed_case(name: str) -> list[str]:
    return [f"may have mixed case, but should otherwise match: {problem}" for problem in _label(name.lower())]


def _list_kind(found: Object, path: str) -> FieldErrors:
    if found.get("kind") and found.get("kind") == found.get("listKind"):
        yield invalid_value(f"{path}.listKind", found["listKind"], "kind and listKind may not be the same")


_NAMES = Rows(
    ("{plural,singular}", require_name(_label)),
    ("{kind,listKind}", require_name(_mixed_case)),
    ("{shortNames,categories}[*]", form(_label)),
    ("", _list_kind),
)


def _versions(versions: list[Object]) -> FieldErrors:
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name") or ""
        if not _VERSION.fullmatch(name):
            yield from each(f"{path}.name", name, names.dns1035_label(name))
        yield from unique(f"{path}.name", name, seen)
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"{path}.schema.openAPIV3Schema")
        if version.get("deprecationWarning") and not version.get("deprecated"):
            detail = "can only be set for deprecated versions"
            yield invalid_value(f"{path}.deprecationWarning", version["deprecationWarning"], detail)
    if sum(bool(v.get("storage")) for v in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        yield invalid_value("spec.versions", [v.get("name") for v in versions] or None, detail)


def _contents(versions: list[Object], before: dict[str | None, Object]) -> FieldErrors:
    """Check what versions serve: at one place for all where they are the same."""
    for key, common, own, check in (
        ("schema", "spec.validation", "schema", _schema),
        ("subresources", "spec.subresources", "subresources", _subresources),
        ("additionalPrinterColumns", "spec.additionalPrinterColumns", "additionalPrinterColumns", _columns),
        ("selectableFields", "spec.selectableFields", "selectableFields", _selectable),
    ):
        alike = all(version.get(key) == versions[0].get(key) for version in versions)
        for index, version in enumerate(versions[:1] if alike else versions):
            known = before.get(version.get("name"))
            if version.get(key) and (known is None or known.get(key) != version[key]):
                path = common if alike else f"spec.versions[{index}].{own}"
                yield from check(version, path)


def _schema(version: Object, path: str) -> Errors:
    source = version["schema"].get("openAPIV3Schema")
    if not source:
        return []
    from control.schemas import rulechecks, structural

    path += ".openAPIV3Schema"
    return structural.check(source, path) or rulechecks.check(source, path)


def _subresources(version: Object, path: str) -> FieldErrors:
    scale = version["subresources"].get("scale")
    if scale is None:
        return
    for key, *roots in (
        ("specReplicasPath", ".spec"),
        ("statusReplicasPath", ".status"),
        ("labelSelectorPath", ".spec", ".status"),
    ):
        value, where = scale.get(key) or "", f"{path}.scale.{key}"
        if not value:
            if key != "labelSelectorPath":
                yield required(where)
        elif not value.startswith("."):
            yield invalid_value(where, value, "must be a simple json path starting with .")
        elif not value.startswith(tuple(f"{root}." for root in roots)):
            either = "either " if len(roots) > 1 else ""
            yield invalid_value(where, value, f"should be a json path under {either}{' or '.join(roots)}")


def _columns(version: Object, path: str) -> FieldErrors:
    for index, column in enumerate(version["additionalPrinterColumns"]):
        where, kind, form = f"{path}[{index}]", column.get("type") or "", column.get("format") or ""
        if not column.get("name"):
            yield required(f"{where}.name")
        if not kind:
            yield required(f"{where}.type", f"must be one of {','.join(COLUMN_TYPES)}")
        elif kind not in COLUMN_TYPES:
            yield invalid_value(f"{where}.type", kind, f"must be one of {','.join(COLUMN_TYPES)}")
        if form and form not in COLUMN_FORMATS:
            yield invalid_value(f"{where}.format", form, f"must be one of {','.join(COLUMN_FORMATS)}")
        json_path = column.get("jsonPath") or ""
        if not json_path:
            yield required(f"{where}.JSONPath")
        elif not json_path.startswith("."):
            yield invalid_value(f"{where}.JSONPath", json_path, "must be a simple json path starting with .")


def _selectable(version: Object, path: str) -> FieldErrors:
    fields = version["selectableFields"]
    if len(fields) > MOST_SELECTABLE:
        yield too_many(path, len(fields), MOST_SELECTABLE)
    seen: set[str] = set()
    for index, one in enumerate(fields):
        json_path, where = one.get("jsonPath") or "", f"{path}[{index}].jsonPath"
        if not json_path:
            yield required(where)
            continue
        yield from unique(where, json_path, seen)
        place: Any = version.get("schema", {}).get("openAPIV3Schema") or {}
        for part in json_path.strip(".").split("."):
            place = (place.get("properties") or {}).get(part) if isinstance(place, dict) else None
        if place is None:
            yield invalid_value(where, json_path, "is an invalid path: does not refer to a valid field")
        elif json_path.startswith(".metadata"):
            yield invalid_value(where, json_path, "must not point to fields in metadata")
        elif place.get("type") not in ("string", "boolean", "integer"):
            why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."  # noqa: E501
            yield invalid_value(where, json_path, why)


def _conversion(conversion: Object) -> Errors:
    path, webhook = "spec.conversion", conversion.get("webhook") or {}
    errors = one_of(conversion.get("strategy"), ("None", "Webhook"), f"{path}.strategy")
    client, reviews = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if conversion.get("strategy") != "Webhook":
        given = {"webhookClientConfig": client is not None, "conversionReviewVersions": bool(reviews)}
        detail = "should not be set when strategy is not set to Webhook"
        return errors + [forbidden_field(f"{path}.{key}", detail) for key, is_set in given.items() if is_set]
    if client is None:
        errors.append(required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
    else:
        errors += validate_client(client, f"{path}.webhookClientConfig")
    return [*errors, *validate_reviews(reviews, f"{path}.conversionReviewVersions")]
