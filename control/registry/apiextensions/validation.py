"""Checks of CustomResourceDefinitions: names, versions, scope, conversion; schemas are checked where they are compiled."""

from __future__ import annotations

import re

from control.registry.checks import Errors, each, one_of
from control.registry.strategy import Object
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, required

_VERSION = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
PROTECTED = (".k8s.io", ".kubernetes.io")
APPROVED = "api-approved.kubernetes.io"


def validate_definition(obj: Object) -> Errors:
    spec, metadata = obj.get("spec") or {}, obj.get("metadata") or {}
    group, plural = spec.get("group") or "", (spec.get("names") or {}).get("plural") or ""
    errors: Errors = []
    if metadata.get("name") != f"{plural}.{group}":
        errors.append(
            invalid_value("metadata.name", metadata.get("name", ""), 'must be spec.names.plural+"."+spec.group')
        )
    if not group:
        errors.append(required("spec.group"))
    else:
        errors += each("spec.group", group, names.dns1123_subdomain(group))
        if not names.dns1123_subdomain(group) and "." not in group:
            errors.append(invalid_value("spec.group", group, "should be a domain with at least one dot"))
    if f".{group}".endswith(PROTECTED) and not (metadata.get("annotations") or {}).get(APPROVED):
        detail = f'protected groups must have approval annotation "{APPROVED}", see https://github.com/kubernetes/enhancements/pull/1111'
        errors.append(required("metadata.annotations[api-approved.kubernetes.io]", detail))
    errors += one_of(spec.get("scope"), ("Cluster", "Namespaced"), "spec.scope")
    errors += _names(spec.get("names") or {}, "spec.names")
    return errors + _versions(spec.get("versions") or []) + _conversion(spec.get("conversion") or {})


def _names(found: Object, path: str) -> Errors:
    errors: Errors = []
    for key in ("plural", "singular", "kind", "listKind"):
        value = found.get(key) or ""
        if not value:
            errors.append(required(f"{path}.{key}"))
        else:
            errors += each(f"{path}.{key}", value, names.dns1035_label(value.lower()))
    for key in ("shortNames", "categories"):
        for index, value in enumerate(found.get(key) or ()):
            errors += each(f"{path}.{key}[{index}]", value, names.dns1035_label(value))
    if found.get("kind") and found.get("kind") == found.get("listKind"):
        errors.append(invalid_value(f"{path}.listKind", found["listKind"], "kind and listKind may not be the same"))
    return errors


def _versions(versions: list[Object]) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name") or ""
        if not _VERSION.fullmatch(name):
            errors += each(f"{path}.name", name, names.dns1035_label(name))
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            errors.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
        elif version["schema"]["openAPIV3Schema"].get("type") != "object":
            where = f"{path}.schema.openAPIV3Schema.type"
            kind = version["schema"]["openAPIV3Schema"].get("type")
            if kind:
                errors.append(invalid_value(where, kind, "must be object at the root"))
            else:
                errors.append(required(where, "must not be empty at the root"))
        if version.get("deprecationWarning") and not version.get("deprecated"):
            detail = "can only be set for deprecated versions"
            errors.append(invalid_value(f"{path}.deprecationWarning", version["deprecationWarning"], detail))
    if sum(bool(v.get("storage")) for v in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        errors.append(invalid_value("spec.versions", [v.get("name") for v in versions], detail))
    return errors


def _conversion(conversion: Object) -> Errors:
    path, webhook = "spec.conversion", conversion.get("webhook")
    errors = one_of(conversion.get("strategy"), ("None", "Webhook"), f"{path}.strategy")
    if conversion.get("strategy") == "Webhook":
        if (webhook or {}).get("clientConfig") is None:
            errors.append(required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
        if not (webhook or {}).get("conversionReviewVersions"):
            errors.append(required(f"{path}.conversionReviewVersions"))
    elif webhook is not None:
        errors.append(forbidden_field(f"{path}.webhook", "should not be set when strategy is not set to Webhook"))
    return errors
