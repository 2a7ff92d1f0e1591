"""Checks of containers: of the app, init, and ephemeral."""

from __future__ import annotations

from collections.abc import Collection

from control.registry.checks import Errors, one_of
from control.registry.core.pod.claim_names import ClaimNames, validate_claims
from control.registry.core.pod.container_ports import unique_host_ports, validate_host_network, validate_ports
from control.registry.core.pod.env import validate_env, validate_env_from
from control.registry.core.pod.mounts import validate_devices, validate_mounts
from control.registry.core.pod.probes import PROBES, validate_probes
from control.registry.core.pod.security import validate_container_security
from control.registry.core.resources import validate_requirements
from control.registry.ratcheting import newly_invalid
from control.registry.rows import Rows
from control.registry.rules import max_items, present, require, require_enum, require_name
from kube import names
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value, required
from kube.json_object import Object

MAX_RESTART_RULES, MAX_EXIT_CODES = 20, 255
_NO_CLAIMS = ClaimNames()
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_EPHEMERAL_FORBIDDEN = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    *PROBES,
    "lifecycle",
)


def validate_all(spec: Object, volumes: dict[str, Object], path: str, *, is_pod: bool) -> Errors:
    """Check all of a pod's or a template's containers; names are unique over all kinds."""
    errors: Errors = []
    grace = spec.get("terminationGracePeriodSeconds")
    containers, inits = spec.get("containers") or [], spec.get("initContainers") or []
    host_users = spec.get("hostUsers") is not False
    claims = ClaimNames.of(spec)
    if is_pod:
        errors += padded_images(containers, f"{path}.containers") + padded_images(inits, f"{path}.initContainers")
    if not containers:
        errors.append(required(f"{path}.containers"))
    seen: set[str] = set()
    for index, container in enumerate(containers):
        where = f"{path}.containers[{index}]"
        errors += validate_container(
            container, volumes, where, spec.get("restartPolicy"), claims, host_users=host_users
        )
        errors += _unique_name(container, seen, where)
        errors += validate_probes(container, where, grace)
        errors += _restart_policy(container, where)
    errors += unique_host_ports(containers, f"{path}.containers")
    for index, container in enumerate(inits):
        where = f"{path}.initContainers[{index}]"
        errors += validate_container(
            container, volumes, where, spec.get("restartPolicy"), claims, host_users=host_users
        )
        errors += _unique_name(container, seen, where)
        if container.get("restartPolicy") == "Always":
            errors += validate_probes(container, where, grace)
        else:
            errors += _restart_policy(container, where)
            for key in ("lifecycle", *PROBES):
                if container.get(key) is not None:
                    detail = "may not be set for init containers without restartPolicy=Always"
                    errors.append(forbidden_field(f"{where}.{key}", detail))
            errors += _no_restart_for_resize(container, f"{where}.resizePolicy")
        # Each alone, as they run one by one; the place is always that of the first.
        errors += unique_host_ports([container], f"{path}.initContainers")
    regular = {c.get("name") for c in [*containers, *inits]}
    errors += validate_ephemeral(spec.get("ephemeralContainers"), volumes, regular, path)
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


def validate_ephemeral(
    containers: list[Object] | None, volumes: dict[str, Object], regular: Collection[str | None], path: str
) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, container in enumerate(containers or ()):
        where, target = f"{path}.ephemeralContainers[{index}]", container.get("targetContainerName") or ""
        errors += validate_container(container, volumes, where)
        errors += _padded_image(container, where)
        name = container.get("name") or ""
        if name and (name in seen or name in regular):
            errors.append(duplicate(f"{where}.name", name))
        seen.add(name)
        if target and target not in regular:
            errors.append(FieldError(f"{where}.targetContainerName", "Not found", "", target))
        for key in _EPHEMERAL_FORBIDDEN:
            if container.get(key):
                errors.append(forbidden_field(f"{where}.{key}", "cannot be set for an Ephemeral Container"))
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            for key in ("subPath", "subPathExpr"):
                if mount.get(key):
                    detail = "cannot be set for an Ephemeral Container"
                    errors.append(forbidden_field(f"{where}.volumeMounts[{number}].{key}", detail))
    return errors


_CONTAINER = Rows(
    ("name", require_name(names.dns1123_label)),
    ("image", require()),
    ("terminationMessagePolicy", require_enum("File", "FallbackToLogsOnError")),
)


def validate_container(
    container: Object,
    volumes: dict[str, Object],
    path: str,
    pod_policy: str | None = None,
    claims: ClaimNames = _NO_CLAIMS,
    *,
    host_users: bool = True,
) -> Errors:
    """Check what containers of all kinds have in common; the last three are the pod's."""
    errors = _CONTAINER(container, path)
    errors += validate_ports(container.get("ports") or [], f"{path}.ports")
    errors += validate_env(container.get("env"), volumes, f"{path}.env")
    errors += validate_env_from(container.get("envFrom"), f"{path}.envFrom")
    errors += validate_mounts(container, volumes, f"{path}.volumeMounts")
    errors += validate_devices(container, volumes, f"{path}.volumeDevices")
    errors += one_of(container.get("imagePullPolicy"), _PULL_POLICIES, f"{path}.imagePullPolicy")
    resources = container.get("resources") or {}
    errors += validate_requirements(resources, f"{path}.resources")
    errors += validate_claims(resources.get("claims") or [], claims, f"{path}.resources.claims")
    errors += _resize_policy(container.get("resizePolicy") or [], f"{path}.resizePolicy", pod_policy)
    return errors + validate_container_security(
        container.get("securityContext"), f"{path}.securityContext", host_users=host_users
    )


def _unique_name(container: Object, seen: set[str], path: str) -> Errors:
    name = container.get("name") or ""
    if not name:
        return []
    if name in seen:
        return [duplicate(f"{path}.name", name)]
    seen.add(name)
    return []


_RESTART_RULES = Rows(
    ("restartPolicyRules", max_items(MAX_RESTART_RULES)),
    ("restartPolicyRules[*].action", require_enum("Restart", "RestartAllContainers")),
    ("restartPolicyRules[*].exitCodes", present("must be specified")),
    ("restartPolicyRules[*].exitCodes?.operator", require_enum("In", "NotIn")),
    ("restartPolicyRules[*].exitCodes?.values", max_items(MAX_EXIT_CODES)),
)


def _restart_policy(container: Object, path: str) -> Errors:
    """A container's own restart policy, with its rules by exit code (KEP-5307)."""
    policy = container.get("restartPolicy")
    errors: Errors = []
    if policy is not None:
        errors += one_of(policy, ("Always", "Never", "OnFailure"), f"{path}.restartPolicy")
    elif container.get("restartPolicyRules"):
        errors.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    return errors + _RESTART_RULES(container, path)


def _no_restart_for_resize(container: Object, path: str) -> Errors:
    """Refuse to restart an init container for a resize; pods of earlier versions may have it."""
    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
    return [
        newly_invalid(f"{path}[{index}].restartPolicy", "RestartContainer", detail)
        for index, policy in enumerate(container.get("resizePolicy") or ())
        if policy.get("restartPolicy") == "RestartContainer"
    ]


def _resize_policy(policies: list[Object], path: str, pod_policy: str | None) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, action = policy.get("resourceName") or "", policy.get("restartPolicy")
        if name in seen:
            errors.append(duplicate(f"{path}[{index}]", name))
        errors += one_of(name, ("cpu", "memory"), path)
        errors += one_of(action, ("NotRequired", "RestartContainer"), path)
        if pod_policy == "Never" and action != "NotRequired":
            errors.append(invalid_value(path, action, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
        seen.add(name)
    return errors
