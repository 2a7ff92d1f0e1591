"""Checks of a pod spec as a whole, and of templates of pods."""

from __future__ import annotations

from control.registry.checks import MAX_INT32, Errors, annotation_keys, each, in_range, labels, one_of
from control.registry.core.pod import containers, placement
from control.registry.core.pod.annotations import validate_annotations
from control.registry.core.pod.operating_system import validate_host_process, validate_os
from control.registry.core.pod.resources import validate_pod_resources
from control.registry.core.pod.security import validate_pod_security
from control.registry.core.pod.volumes import validate_volumes
from control.registry.core.resources import validate_requirements
from control.registry.ip_checks import ip
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, required, too_long
from kube.json_object import Object

RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_SUBDOMAINS = ("serviceAccountName", "nodeName", "runtimeClassName", "priorityClassName")


def validate_template(template: Object, path: str) -> Errors:
    """Check a workload's template; `path` is its own, such as spec.template."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    errors = labels(metadata.get("labels"), f"{path}.labels")
    errors += annotation_keys(metadata.get("annotations"), f"{path}.annotations")
    errors += validate_annotations(metadata.get("annotations") or {}, spec, f"{path}.annotations")
    errors += validate_pod_spec(spec, f"{path}.spec", is_pod=False)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(forbidden_field(f"{path}.spec.ephemeralContainers", detail))
    return errors


def validate_pod_spec(spec: Object, path: str = "spec", *, is_pod: bool = True) -> Errors:
    """Check a pod spec with its defaults filled in, a pod's own or that of a template."""
    errors, volumes = validate_volumes(spec.get("volumes"), f"{path}.volumes", is_pod=is_pod)
    errors += _resource_claims(spec.get("resourceClaims") or [], f"{path}.resourceClaims")
    errors += containers.validate_all(spec, volumes, path, is_pod=is_pod)
    errors += validate_pod_resources(spec, f"{path}.resources")
    errors += one_of(spec.get("restartPolicy"), RESTART_POLICIES, f"{path}.restartPolicy")
    errors += one_of(spec.get("dnsPolicy"), _DNS_POLICIES, f"{path}.dnsPolicy")
    errors += labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    errors += validate_pod_security(spec, f"{path}.securityContext") + validate_host_process(spec, path)
    errors += placement.validate_affinity(spec.get("affinity"), f"{path}.affinity")
    errors += _dns_config(spec, f"{path}.dnsConfig")
    errors += _readiness_gates(spec.get("readinessGates") or [], f"{path}.readinessGates")
    errors += placement.validate_gates(spec.get("schedulingGates"), f"{path}.schedulingGates")
    errors += placement.validate_spread(spec.get("topologySpreadConstraints"), f"{path}.topologySpreadConstraints")
    errors += _names(spec, path)
    errors += in_range(spec.get("activeDeadlineSeconds"), 1, MAX_INT32, f"{path}.activeDeadlineSeconds")
    errors += placement.validate_tolerations(spec.get("tolerations"), f"{path}.tolerations")
    errors += _host_aliases(spec.get("hostAliases") or [], f"{path}.hostAliases")
    if spec.get("preemptionPolicy"):
        policies = ("PreemptLowerPriority", "Never")
        errors += one_of(spec["preemptionPolicy"], policies, f"{path}.preemptionPolicy")
    errors += validate_requirements({"limits": spec.get("overhead")}, f"{path}.overhead")  # under upstream's path
    system = spec.get("os")
    if system is not None:
        name = system.get("name") or ""
        if not name:
            errors.append(required(f"{path}.os.name"))
        else:
            errors += one_of(name, ("linux", "windows"), f"{path}.os") or validate_os(spec, path)
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


def _resource_claims(claims: list[Object], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where, name = f"{path}[{index}]", claim.get("name") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        elif name in seen:
            errors.append(duplicate(f"{where}.name", name))
        else:
            errors += each(f"{where}.name", name, names.dns1123_label(name))
        seen.add(name)
        given = [k for k in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(k) is not None]
        if len(given) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(invalid_value(where, claim, detail))
        elif not given:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid_value(where, claim, detail))
        for key in given:
            errors += each(f"{where}.{key}", claim[key], names.dns1123_subdomain(claim[key]))
    return errors


def _names(spec: Object, path: str) -> Errors:
    errors: Errors = []
    for key in _SUBDOMAINS:
        if spec.get(key) or (key == "runtimeClassName" and spec.get(key) is not None):  # the others have no presence
            errors += each(f"{path}.{key}", spec[key], names.dns1123_subdomain(spec[key]))
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            errors += each(f"{path}.{key}", spec[key], names.dns1123_label(spec[key]))
    override = spec.get("hostnameOverride")
    if override is not None:
        errors += _hostname_override(override, spec, f"{path}.hostnameOverride")
    return errors


def _hostname_override(name: str, spec: Object, path: str) -> Errors:
    errors = [
        forbidden_field(path, f"may not be specified when {key} is true")
        for key in ("setHostnameAsFQDN", "hostNetwork")
        if spec.get(key)
    ]
    if len(name) > 64:
        errors.append(too_long(path, 64))
    return errors + each(path, name, names.dns1123_subdomain(name))


def _dns_config(spec: Object, path: str) -> Errors:
    config, policy = spec.get("dnsConfig"), spec.get("dnsPolicy")
    if policy == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", detail)]
    config = config or {}
    errors: Errors = []
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        errors.append(invalid_value(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        errors += ip(server, f"{path}.nameservers[{index}]")
    if len(searches) > 32:
        errors.append(invalid_value(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        errors.append(invalid_value(f"{path}.searches", searches, detail))
    for index, search in enumerate(searches):
        if search != ".":
            plain = search.removesuffix(".")
            errors += each(f"{path}.searches[{index}]", plain, names.dns1123_subdomain_with_underscore(plain))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(required(f"{path}.options[{index}]", "must not be empty"))
    return errors


def _readiness_gates(gates: list[Object], path: str) -> Errors:
    errors: Errors = []
    for index, gate in enumerate(gates):
        kind = gate.get("conditionType") or ""
        errors += each(f"{path}[{index}].conditionType", kind, names.qualified_name(kind))
    return errors


def _host_aliases(aliases: list[Object], path: str) -> Errors:
    errors: Errors = []
    for index, alias in enumerate(aliases):
        errors += ip(alias.get("ip") or "", f"{path}[{index}].ip")
        for number, name in enumerate(alias.get("hostnames") or ()):
            errors += each(f"{path}[{index}].hostnames[{number}]", name, names.dns1123_subdomain(name))
    return errors
