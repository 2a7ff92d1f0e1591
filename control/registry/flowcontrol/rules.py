"""Checks of whom and what a FlowSchema's rules choose (pkg/apis/flowcontrol/validation)."""

from __future__ import annotations

from control.registry.checks import Errors, each, required_name
from kube import names
from kube.errors import forbidden_field, invalid_value, not_supported, required
from kube.json_object import Object

_VERBS = ("*", "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_SUBJECTS = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}


def validate_rule(rule: Object, path: str) -> Errors:
    errors: Errors = []
    if not rule.get("subjects"):
        errors.append(required(f"{path}.subjects", "subjects must contain at least one value"))
    for index, subject in enumerate(rule.get("subjects") or ()):
        errors += _subject(subject, f"{path}.subjects[{index}]")
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        errors.append(required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
    for index, part in enumerate(rule.get("resourceRules") or ()):
        errors += _resources(part, f"{path}.resourceRules[{index}]")
    for index, part in enumerate(rule.get("nonResourceRules") or ()):
        where, urls = f"{path}.nonResourceRules[{index}]", part.get("nonResourceURLs") or []
        errors += _verbs(part.get("verbs") or [], f"{where}.verbs")
        if not urls:
            detail = "nonResourceURLs must contain at least one value"
            errors.append(required(f"{where}.nonResourceURLs", detail))
        elif "*" in urls and len(urls) > 1:
            detail = "if '*' is present, must not specify other non-resource URLs"
            errors.append(invalid_value(f"{where}.nonResourceURLs", urls, detail))
        elif "*" not in urls:
            for place, url in enumerate(urls):
                errors += _url(url, f"{where}.nonResourceURLs[{place}]")
    return errors


def _url(url: str, path: str) -> Errors:
    """Check a path outside the API's resources; the last step of one may be `*`."""
    if not url:
        return [invalid_value(path, url, "must not be empty")]
    if not url.startswith("/"):
        return [invalid_value(path, url, "must start with slash")]
    if " " in url:
        return [invalid_value(path, url, "must not contain white-space")]
    if "//" in url:
        return [invalid_value(path, url, "must not contain double slash")]
    if url.count("*") > 1 or ("*" in url and not url.endswith("/*")):
        return [invalid_value(path, url, "wildcard can only do suffix matching")]
    return []


def _subject(subject: Object, path: str) -> Errors:
    kind = subject.get("kind") or ""
    if kind not in _SUBJECTS:
        return [not_supported(f"{path}.kind", kind, ("Group", "ServiceAccount", "User"))]
    errors: Errors = []
    for other, key in _SUBJECTS.items():
        if other != kind and subject.get(key) is not None:
            errors.append(forbidden_field(f"{path}.{key}", f"{key} is forbidden when subject kind is not '{other}'"))
    key = _SUBJECTS[kind]
    found = subject.get(key)
    if found is None:
        return [*errors, required(f"{path}.{key}", f"{key} is required when subject kind is '{kind}'")]
    name = found.get("name") or ""
    if not name:
        errors.append(required(f"{path}.{key}.name"))
    if kind == "ServiceAccount":
        if name and name != "*":
            errors += each(f"{path}.{key}.name", name, names.dns1123_subdomain(name))
        where, detail = f"{path}.{key}.namespace", "must specify namespace for service account"
        errors += required_name(where, found.get("namespace"), names.dns1123_label, detail)
    return errors


def _resources(rule: Object, path: str) -> Errors:
    errors = _verbs(rule.get("verbs") or [], f"{path}.verbs")
    for key, words in (("apiGroups", "api group"), ("resources", "resource")):
        values = rule.get(key) or []
        if not values:
            errors.append(required(f"{path}.{key}", f"resource rules must supply at least one {words}"))
        elif "*" in values and len(values) > 1:
            detail = f"if '*' is present, must not specify other {words}s"
            errors.append(invalid_value(f"{path}.{key}", values, detail))
    namespaces = rule.get("namespaces") or []
    if not namespaces and not rule.get("clusterScope"):
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        errors.append(required(f"{path}.namespaces", detail))
    elif "*" in namespaces:
        if len(namespaces) > 1:
            detail = "if '*' is present, must not specify other namespaces"
            errors.append(invalid_value(f"{path}.namespaces", namespaces, detail))
    else:
        for index, namespace in enumerate(namespaces):
            either = "each member of this list must be '*' or a DNS-1123 label; "
            problems = [either + problem for problem in names.dns1123_label(namespace)]
            errors += each(f"{path}.namespaces[{index}]", namespace, problems)
    return errors


def _verbs(verbs: list[str], path: str) -> Errors:
    if not verbs:
        return [required(path, "verbs must contain at least one value")]
    if "*" in verbs:
        if len(verbs) > 1:
            return [invalid_value(path, verbs, "if '*' is present, must not specify other verbs")]
        return []
    return [not_supported(path, verbs, _VERBS[1:])] if set(verbs) - set(_VERBS) else []
