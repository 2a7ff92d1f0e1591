"""Checks of containers: of the app, init, and ephemeral."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from control.registry.checks import Errors, FieldErrors, one_of
from control.registry.core.pod.claim_names import ClaimNames, validate_claims
from control.registry.core.pod.container_ports import unique_host_ports, validate_host_network, validate_ports
from control.registry.core.pod.env import validate_env, validate_env_from
from control.registry.core.pod.mounts import validate_devices, validate_mounts
from control.registry.core.pod.probes import PROBES, validate_probes
from control.registry.core.pod.security import validate_container_security
from control.registry.core.resources import validate_requirements
from control.registry.ratcheting import newly_invalid
from control.registry.rows import Rows
from control.registry.rules import forbid, if_present, max_items, optional, present, require, require_enum, require_name
from kube import names
from kube.errors import FieldError, duplicate, invalid_value, required
from kube.json_object import Object

MAX_RESTART_RULES, MAX_EXIT_CODES = 20, 255


class _Pod(msgspec.Struct, frozen=True):
    """Fields of a pod that the checks of its containers depend on."""

    volumes: dict[str, Object]
    restart_policy: str | None = None
    claims: ClaimNames = ClaimNames()
    host_users: bool = True


def validate_all(spec: Object, volumes: dict[str, Object], path: str, *, is_pod: bool) -> Errors:
    """Check all of a pod's or a template's containers; names are unique over all kinds."""
    errors, seen = Errors(), set[str]()
    grace = spec.get("terminationGracePeriodSeconds")
    containers, inits = spec.get("containers") or [], spec.get("initContainers") or []
    pod = _Pod(volumes, spec.get("restartPolicy"), ClaimNames.of(spec), spec.get("hostUsers") is not False)
    if is_pod:
        errors += padded_images(containers, f"{path}.containers") + padded_images(inits, f"{path}.initContainers")
    if not containers:
        errors.append(required(f"{path}.containers"))
    for index, container in enumerate(containers):
        where = f"{path}.containers[{index}]"
        errors += _container(container, pod, where) + _unique_name(container, seen, where)
        errors += validate_probes(container, where, grace)
        errors += _RESTART(container, where)
    errors += unique_host_ports(containers, f"{path}.containers")
    for index, container in enumerate(inits):
        where = f"{path}.initContainers[{index}]"
        errors += _container(container, pod, where) + _unique_name(container, seen, where)
        if container.get("restartPolicy") == "Always":
            errors += validate_probes(container, where, grace)
        else:
            errors += _RESTART(container, where) + _INIT(container, where)
        # Each alone, as they run one by one; the place is always that of the first.
        errors += unique_host_ports([container], f"{path}.initContainers")
    if spec.get("ephemeralContainers"):
        regular = {c.get("name") for c in [*containers, *inits]}
        errors += _validate_ephemeral(spec["ephemeralContainers"], _Pod(volumes), regular, path)
    if spec.get("hostNetwork"):
        errors += validate_host_network(containers, f"{path}.containers", is_pod=is_pod)
    return errors


def padded_images(containers: list[Object], path: str) -> Errors:
    """Refuse blanks around an image, which templates may have."""
    return [e for index, container in enumerate(containers) for e in _padded_image(container, f"{path}[{index}]")]


def _padded_image(container: Object, path: str) -> Errors:
    image = container.get("image") or ""
    if image.strip() == image:
        return []
    return [invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")]


def _validate_ephemeral(containers: list[Object], pod: _Pod, regular: Collection[str | None], path: str) -> FieldErrors:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        where, target = f"{path}.ephemeralContainers[{index}]", container.get("targetContainerName") or ""
        yield from _container(container, pod, where)
        yield from _padded_image(container, where)
        name = container.get("name") or ""
        if name and (name in seen or name in regular):
            yield duplicate(f"{where}.name", name)
        seen.add(name)
        if target and target not in regular:
            yield FieldError(f"{where}.targetContainerName", "Not found", "", target)
        yield from _EPHEMERAL(container, where)


_NOT_EPHEMERAL = optional(forbid("cannot be set for an Ephemeral Container"))
_PROBES = ",".join(PROBES)
_EPHEMERAL = Rows(
    (f"{{ports,resources,resizePolicy,restartPolicy,restartPolicyRules,{_PROBES},lifecycle}}", _NOT_EPHEMERAL),
    ("volumeMounts[*].{subPath,subPathExpr}", _NOT_EPHEMERAL),
)
_NAME = Rows(
    ("name", require_name(names.dns1123_label)),
    ("image", require()),
    ("terminationMessagePolicy", require_enum("File", "FallbackToLogsOnError")),
    ("ports", optional(validate_ports)),
)
_RESOURCES = Rows(
    ("imagePullPolicy", require_enum("Always", "IfNotPresent", "Never")),
    ("resources", optional(validate_requirements)),
)


def _container(container: Object, pod: _Pod, path: str) -> Errors:
    """Check what containers of all kinds have in common."""
    get, errors = container.get, _NAME(container, path)
    if get("env"):
        errors += validate_env(get("env"), pod.volumes, f"{path}.env")
    if get("envFrom"):
        errors += validate_env_from(get("envFrom"), f"{path}.envFrom")
    if get("volumeMounts"):
        errors += validate_mounts(container, pod.volumes, f"{path}.volumeMounts")
    if get("volumeDevices"):
        errors += validate_devices(container, pod.volumes, f"{path}.volumeDevices")
    errors += _RESOURCES(container, path)
    if claims := (get("resources") or {}).get("claims"):
        errors += validate_claims(claims, pod.claims, f"{path}.resources.claims")
    if get("resizePolicy"):
        errors += _resize_policy(container["resizePolicy"], f"{path}.resizePolicy", pod.restart_policy)
    if get("securityContext"):
        where = f"{path}.securityContext"
        errors += validate_container_security(get("securityContext"), where, host_users=pod.host_users)
    return errors


def _unique_name(container: Object, seen: set[str], path: str) -> Errors:
    name = container.get("name") or ""
    if not name:
        return []
    if name in seen:
        return [duplicate(f"{path}.name", name)]
    seen.add(name)
    return []


def _policy_of_rules(container: Object, path: str) -> FieldErrors:
    if container["restartPolicyRules"] and container.get("restartPolicy") is None:
        yield required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")


_RESTART = Rows(
    ("restartPolicy?", require_enum("Always", "Never", "OnFailure")),
    ("", if_present("restartPolicyRules", _policy_of_rules)),
    ("restartPolicyRules", max_items(MAX_RESTART_RULES)),
    ("restartPolicyRules[*].action", require_enum("Restart", "RestartAllContainers")),
    ("restartPolicyRules[*].exitCodes", present("must be specified")),
    ("restartPolicyRules[*].exitCodes?.operator", require_enum("In", "NotIn")),
    ("restartPolicyRules[*].exitCodes?.values", max_items(MAX_EXIT_CODES)),
)
"""Rules of a container's own restart policy, with its rules by exit code (KEP-5307)."""


def _no_restart_for_resize(policies: list[Object], path: str) -> Errors:
    """Refuse to restart an init container for a resize; pods of earlier versions may have it."""
    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
    return [
        newly_invalid(f"{path}[{index}].restartPolicy", "RestartContainer", detail)
        for index, policy in enumerate(policies)
        if policy.get("restartPolicy") == "RestartContainer"
    ]


_INIT = Rows(
    (f"{{lifecycle,{_PROBES}}}", forbid("may not be set for init containers without restartPolicy=Always")),
    ("resizePolicy", optional(_no_restart_for_resize)),
)


def _resize_policy(policies: list[Object], path: str, pod_policy: str | None) -> FieldErrors:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, action = policy.get("resourceName") or "", policy.get("restartPolicy")
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        yield from one_of(name, ("cpu", "memory"), path)
        yield from one_of(action, ("NotRequired", "RestartContainer"), path)
        if pod_policy == "Never" and action != "NotRequired":
            yield invalid_value(path, action, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
        seen.add(name)
