"""Checks of a pod spec as a whole, and of templates of pods."""

from __future__ import annotations

from control.registry.checks import MAX_INT32, Errors, FieldErrors, annotation_keys, each, labels, one_of
from control.registry.core.pod import containers, placement
from control.registry.core.pod.annotations import validate_annotations
from control.registry.core.pod.operating_system import validate_host_process, validate_os
from control.registry.core.pod.resources import validate_pod_resources
from control.registry.core.pod.security import validate_pod_security
from control.registry.core.pod.volumes import validate_volumes
from control.registry.core.resources import validate_requirements
from control.registry.ip_checks import ip
from control.registry.rows import Rows
from control.registry.rules import Test, between, form, if_present, optional, require_enum, text
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, required, too_long
from kube.json_object import Object

RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def validate_template(template: Object, path: str) -> FieldErrors:
    """Check a workload's template; `path` is its own, such as spec.template."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    yield from labels(metadata.get("labels"), f"{path}.labels")
    yield from annotation_keys(metadata.get("annotations"), f"{path}.annotations")
    yield from validate_annotations(metadata.get("annotations") or {}, spec, f"{path}.annotations")
    yield from validate_pod_spec(spec, f"{path}.spec", is_pod=False)
    if spec.get("ephemeralContainers"):
        yield forbidden_field(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")


def validate_pod_spec(spec: Object, path: str = "spec", *, is_pod: bool = True) -> Errors:
    """Check a pod spec with its defaults filled in, a pod's own or that of a template."""
    errors, volumes = validate_volumes(spec.get("volumes"), f"{path}.volumes", is_pod=is_pod)
    if spec.get("resourceClaims"):
        errors += _resource_claims(spec["resourceClaims"], f"{path}.resourceClaims")
    errors += containers.validate_all(spec, volumes, path, is_pod=is_pod)
    errors += _SPEC(spec, path)
    if is_pod and not spec.get("serviceAccountName"):
        errors += _tokens_without_account(spec.get("volumes") or [], f"{path}.volumes")
    return errors


def _tokens_without_account(volumes: list[Object], path: str) -> Errors:
    return [
        forbidden_field(
            f"{path}[{index}].projected.sources[{number}].serviceAccountToken",
            "must not be specified when serviceAccountName is not set",
        )
        for index, volume in enumerate(volumes)
        for number, source in enumerate((volume.get("projected") or {}).get("sources") or ())
        if source.get("serviceAccountToken") is not None
    ]


def _resource_claims(claims: list[Object], path: str) -> FieldErrors:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where, name = f"{path}[{index}]", claim.get("name") or ""
        if not name:
            yield required(f"{where}.name")
        elif name in seen:
            yield duplicate(f"{where}.name", name)
        else:
            yield from each(f"{where}.name", name, names.dns1123_label(name))
        seen.add(name)
        given = [k for k in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(k) is not None]
        if len(given) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield invalid_value(where, claim, detail)
        elif not given:
            yield invalid_value(where, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        for key in given:
            yield from each(f"{where}.{key}", claim[key], names.dns1123_subdomain(claim[key]))


def _hostname_override(spec: Object, path: str) -> FieldErrors:
    name, where = spec["hostnameOverride"], f"{path}.hostnameOverride"
    for key in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(key):
            yield forbidden_field(where, f"may not be specified when {key} is true")
    if len(name) > 64:
        yield too_long(where, 64)
    yield from each(where, name, names.dns1123_subdomain(name))


def _dns_config(spec: Object, path: str) -> Errors:
    config, path = spec.get("dnsConfig"), f"{path}.dnsConfig"
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            return [
                required(f"{path}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
            ]
    return _DNS(config, path)


def _most(limit: int, what: str) -> Test:
    detail = f"must not have more than {limit} {what}"
    return Test("{value} and len({value}) > {limit}", limit, lambda value, path: [invalid_value(path, value, detail)])


def _search_list(searches: list[str] | None, path: str) -> FieldErrors:
    if len(" ".join(searches or ())) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        yield invalid_value(path, searches, detail)


def _search(search: str, path: str) -> Errors:
    plain = search.removesuffix(".")
    return [] if search == "." else each(path, plain, names.dns1123_subdomain_with_underscore(plain))


def _named_option(option: Object, path: str) -> FieldErrors:
    if not option.get("name"):
        yield required(path, "must not be empty")


_DNS = Rows(
    ("nameservers", _most(3, "nameservers")),
    ("nameservers[*]", ip),
    ("searches", _most(32, "search paths"), _search_list),
    ("searches[*]", _search),
    ("options[*]", _named_option),
)


def _overhead(overhead: Object | None, path: str) -> FieldErrors:
    return validate_requirements({"limits": overhead}, path)  # under upstream's path


def _os(spec: Object, path: str) -> Errors:
    name = spec["os"].get("name")
    if not name:
        return [required(f"{path}.os.name")]
    return one_of(name, ("linux", "windows"), f"{path}.os") or validate_os(spec, path)


_SPEC = Rows(
    ("", if_present("resources", validate_pod_resources)),
    ("restartPolicy", require_enum(*RESTART_POLICIES)),
    ("dnsPolicy", require_enum(*_DNS_POLICIES)),
    ("nodeSelector", optional(labels)),
    ("", validate_pod_security, validate_host_process),
    ("affinity", placement.AFFINITY),
    ("", _dns_config),
    ("readinessGates[*].conditionType", form(names.qualified_name)),
    ("schedulingGates", optional(placement.validate_gates)),
    ("topologySpreadConstraints", optional(placement.validate_spread)),
    ("{serviceAccountName,nodeName}", optional(form(names.dns1123_subdomain))),
    ("runtimeClassName?", form(names.dns1123_subdomain)),
    ("priorityClassName", optional(form(names.dns1123_subdomain))),
    ("{hostname,subdomain}", optional(form(names.dns1123_label))),
    ("", if_present("hostnameOverride", _hostname_override)),
    ("activeDeadlineSeconds", between(1, MAX_INT32)),
    ("tolerations", placement.validate_tolerations),
    ("hostAliases[*].ip", text(ip)),
    ("hostAliases[*].hostnames[*]", form(names.dns1123_subdomain)),
    ("preemptionPolicy", optional(require_enum("PreemptLowerPriority", "Never"))),
    ("overhead", optional(_overhead)),
    ("", if_present("os", _os)),
)
"""Rules of a pod spec, but for those of its volumes and containers."""
