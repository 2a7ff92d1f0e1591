"""FlowSchemas: classification of requests under load, by subjects, resources and paths (pkg/apis/flowcontrol/validation)."""

from __future__ import annotations

from control.registry.checks import Errors, each, required_name
from control.registry.defaults import Defaults, absent
from control.registry.naming import path_segment
from control.registry.rows import Rows
from control.registry.rules import maximum, minimum, only_wildcard, require, require_enum, require_name
from control.registry.strategy import OBJECT_META, Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field, name_of
from kube import names
from kube.errors import forbidden_field, invalid_value, not_supported, required
from kube.json_object import Object

_VERBS = ("*", "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_SUBJECTS = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}


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


def _any_rule(rule: Object, path: str) -> Errors:
    if rule.get("resourceRules") or rule.get("nonResourceRules"):
        return []
    return [required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")]


def _known_verbs(verbs: list[str] | None, path: str) -> Errors:
    unknown = verbs and "*" not in verbs and set(verbs) - set(_VERBS)
    return [not_supported(path, verbs, _VERBS[1:])] if unknown else []


def _urls(urls: list[str] | None, path: str) -> Errors:
    checked = () if "*" in (urls or ()) else enumerate(urls or ())
    return [error for index, url in checked for error in _url(url, f"{path}[{index}]")]


def _namespaces(rule: Object, path: str) -> Errors:
    namespaces, where = rule.get("namespaces") or [], f"{path}.namespaces"
    if not namespaces and not rule.get("clusterScope"):
        return [required(where, "resource rules that are not cluster scoped must supply at least one namespace")]
    either = "each member of this list must be '*' or a DNS-1123 label; "
    return [
        invalid_value(f"{where}[{index}]", namespace, either + problem)
        for index, namespace in enumerate(namespaces if "*" not in namespaces else ())
        for problem in names.dns1123_label(namespace)
    ]


_RULE_VERBS = Rows(("verbs", require("verbs must contain at least one value"), only_wildcard("verbs"), _known_verbs))
_RESOURCES = Rows(
    ("", _RULE_VERBS),
    ("apiGroups", require("resource rules must supply at least one api group"), only_wildcard("api groups")),
    ("resources", require("resource rules must supply at least one resource"), only_wildcard("resources")),
    ("namespaces", only_wildcard("namespaces")),
    ("", _namespaces),
)
_NON_RESOURCES = Rows(
    ("", _RULE_VERBS),
    ("nonResourceURLs", require("nonResourceURLs must contain at least one value")),
    ("nonResourceURLs", only_wildcard("non-resource URLs"), _urls),
)
RULE = Rows(
    ("subjects", require("subjects must contain at least one value")),
    ("subjects[*]", _subject),
    ("", _any_rule),
    ("resourceRules[*]", _RESOURCES),
    ("nonResourceRules[*]", _NON_RESOURCES),
)


def _method(method: Object | None) -> str:
    return method.get("type", "") if method else NONE


def _dangling(conditions: list[Object] | None) -> str:
    return next((c.get("status", "") for c in conditions or () if c.get("type") == "Dangling"), "?")


def _highest_precedence(obj: Object, path: str) -> Errors:
    if (obj.get("spec") or {}).get("matchingPrecedence") != 1 or name_of(obj) == "exempt":
        return []
    return [invalid_value("spec.matchingPrecedence", 1, "only the schema named 'exempt' may have matchingPrecedence 1")]


class FlowSchemaStrategy(Strategy):
    status_keeps = OBJECT_META
    columns = (
        NAME,
        Column("PriorityLevel", Field("spec.priorityLevelConfiguration.name")),
        Column("MatchingPrecedence", Field("spec.matchingPrecedence", 0)),
        Column("DistinguisherMethod", Field("spec.distinguisherMethod", show=_method)),
        AGE,
        Column("MissingPL", Field("status.conditions", show=_dangling), "Whether the priority level does not exist."),
    )
    field_rules = Rows(
        ("spec.matchingPrecedence", minimum(1, "must be a positive value")),
        ("spec.matchingPrecedence", maximum(10000, "must not be greater than 10000")),
        ("", _highest_precedence),
        (
            "spec.priorityLevelConfiguration.name",
            require_name(names.dns1123_subdomain, "must reference a priority level"),
        ),
        ("spec.distinguisherMethod?.type", require_enum("ByNamespace", "ByUser")),
        ("spec.rules[*]", RULE),
    )
    field_defaults = Defaults(("spec", absent({})), ("spec.matchingPrecedence", 1000))
    name_rule = staticmethod(path_segment)
