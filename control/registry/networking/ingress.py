"""Ingresses."""

from __future__ import annotations

import re

from control.registry.checks import Errors, each, port, required_name
from control.registry.load_balancer_points import no_address, point_warnings, validate_points
from control.registry.rows import Rows
from control.registry.rules import form, optional, require
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field
from kube import names
from kube.errors import FieldError, invalid_value, not_supported, required
from kube.json_object import Object

SHOWN = 3
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_CLASS = f"annotations.{CLASS_ANNOTATION}"
_SECRET = re.compile(r"spec\.tls\[[0-9]+\]\.secretName")
_HTTP = re.compile(r"spec\.rules\[[0-9]+\]\.http")
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


_WILDCARD = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_POSSESSIVE = re.compile(_WILDCARD + "+")


def _of_wildcards(errors: list[FieldError], obj: Object) -> list[FieldError]:
    """Return the errors in backends and paths of rules whose hosts contain a wildcard."""
    rules = (obj.get("spec") or {}).get("rules") or ()
    prefixes = {f"spec.rules[{index}].http" for index, rule in enumerate(rules) if "*" in (rule.get("host") or "")}
    return [error for error in errors if (found := _HTTP.match(error.path)) and found[0] in prefixes]


def _host_problems(host: str) -> list[str]:
    if "*" not in host:
        return names.dns1123_subdomain(host)
    if len(host) <= 253 and _POSSESSIVE.fullmatch(host):
        return []
    return [
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower "
        "case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used "
        f"for validation is '{_WILDCARD}')"
    ]


def _validate_backend(backend: Object, path: str) -> list[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [invalid_value(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return [required(f"{path}.resource.{key}") for key in ("kind", "name") if not resource.get(key)]
    if service is None:
        return [invalid_value(path, "", "resource or service backend is required")]
    errors = required_name(f"{path}.service.name", service.get("name"), names.dns1123_label)
    target = service.get("port") or {}
    if target.get("name") and target.get("number"):
        errors.append(invalid_value(path, "", "cannot set both port name & port number"))
    elif target.get("name"):
        errors += each(f"{path}.service.port.name", target["name"], names.port_name(target["name"]))
    elif target.get("number"):
        errors += port(target["number"], f"{path}.service.port.number")
    else:
        errors.append(required(path, "port name or number is required"))
    return errors


def _path(item: Object, path: str) -> Errors:
    """Check a path of a rule, and its backend if the path has a type."""
    kind, target, where, errors = item.get("pathType"), item.get("path") or "", f"{path}.path", []
    if not kind:
        return [required(f"{path}.pathType", "pathType must be specified")]
    if kind not in _PATH_TYPES:
        errors.append(not_supported(f"{path}.pathType", kind, _PATH_TYPES))
    elif kind != "ImplementationSpecific" or target:
        if not target.startswith("/"):
            errors.append(invalid_value(where, target, "must be an absolute path"))
        if kind != "ImplementationSpecific":
            bad = [f"must not contain '{part}'" for part in ("//", "/./", "/../", "%2f", "%2F") if part in target]
            bad += [f"cannot end with '{part}'" for part in ("/..", "/.") if target.endswith(part)]
            errors += each(where, target, bad)
    return errors + _validate_backend(item.get("backend") or {}, f"{path}.backend")


def _any_backend(spec: Object, path: str) -> Errors:
    if spec.get("rules") or spec.get("defaultBackend") is not None:
        return []
    return [invalid_value(path, [], "either `defaultBackend` or `rules` must be specified")]


def _one_class(obj: Object, path: str) -> Errors:
    name = (obj.get("spec") or {}).get("ingressClassName")
    annotated = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    if name is None or annotated is None or annotated == name:
        return []
    return [invalid_value(_CLASS, annotated, "must match `ingressClassName` when both are specified")]


_RULE = Rows(
    ("host", optional(no_address), optional(form(_host_problems))),
    ("http?.paths", require()),
    ("http?.paths[*]", _path),
)


def _hosts(rules: list[Object] | None) -> str:
    hosts = [r["host"] for r in rules or () if r.get("host")]
    more = f" + {len(hosts) - SHOWN} more..." if len(hosts) > SHOWN else ""
    return (",".join(hosts[:SHOWN]) or "*") + more


def _addresses(points: list[Object] | None) -> str:
    return ",".join(sorted({p.get("ip") or p.get("hostname") or "" for p in points or ()} - {""}))


class IngressStrategy(Strategy):
    columns = (
        NAME,
        Column("Class", Field("spec.ingressClassName", NONE), "Which controller serves it."),
        Column("Hosts", Field("spec.rules", show=_hosts), "Hosts that requests are matched against."),
        Column("Address", Field("status.loadBalancer.ingress", show=_addresses), "Where the load balancer listens."),
        Column("Ports", Field("spec.tls", show=lambda tls: "80, 443" if tls else "80"), "80, and 443 with TLS."),
        AGE,
    )
    field_rules = Rows(
        ("spec", _any_backend),
        ("spec.defaultBackend?", _validate_backend),
        ("spec.rules[*]", _RULE),
        ("spec.tls[*].hosts[*]", form(_host_problems)),
        ("spec.tls[*].secretName", optional(form(names.dns1123_subdomain))),
        ("", _one_class),
        ("spec.ingressClassName?", form(names.dns1123_subdomain)),
    )

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"loadBalancer": {}}

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Check a change; the class is compared with its annotation only at creation, and two older mistakes may stay."""
        kept = [_CLASS]
        before = self.validate(old)
        if any(_SECRET.fullmatch(error.path) for error in before):
            kept += [f"spec.tls[{index}].secretName" for index in range(len((obj.get("spec") or {}).get("tls") or ()))]
        errors = [error for error in self.validate(obj) if error.path not in kept]
        if not _of_wildcards(before, old):
            return errors
        kept_errors = set(map(id, _of_wildcards(errors, obj)))
        return [error for error in errors if id(error) not in kept_errors]

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_points(obj, old, with_mode=False)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        annotated = CLASS_ANNOTATION in (obj.get("metadata", {}).get("annotations") or {})
        if annotated and old is None:
            return [f"annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"]
        return []

    def status_warnings(self, obj: Object) -> list[str]:
        return point_warnings(obj)
