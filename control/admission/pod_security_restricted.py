"""Checks of the restricted level: each takes a pod and returns its violation, None for none."""

from __future__ import annotations

from control.admission.pod_security_details import (
    Violation,
    containers_with,
    contexts,
    forbidden_additions,
    forbidden_seccomp,
    named,
    plural,
    quoted,
    setters,
    using,
)
from kube.json_object import Object

_FREE_VOLUMES = frozenset(
    "configMap csi downwardAPI emptyDir ephemeral image persistentVolumeClaim projected secret".split()
)


def escalation(pod: Object) -> Violation | None:
    bad = containers_with(pod, lambda context: context.get("allowPrivilegeEscalation") is not False)
    if not bad:
        return None
    detail = f"{named('container', bad)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


def capabilities(pod: Object) -> Violation | None:
    lacking = containers_with(pod, lambda context: "ALL" not in ((context.get("capabilities") or {}).get("drop") or ()))
    details = [f'{named("container", lacking)} must set securityContext.capabilities.drop=["ALL"]'] if lacking else []
    added = forbidden_additions(pod, frozenset({"NET_BIND_SERVICE"}))
    details += [added] if added else []
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def volume_types(pod: Object) -> Violation | None:
    bad: list[str] = []
    kinds: set[str] = set()
    for volume in pod["spec"].get("volumes") or ():
        sources = {key for key, source in volume.items() if key != "name" and source is not None}
        if not sources & _FREE_VOLUMES:
            bad.append(volume.get("name", ""))
            kinds |= sources or {"unknown"}
    if not bad:
        return None
    what = plural("restricted volume type", len(kinds))
    return Violation("restricted volume types", f"{using('volume', bad)} {what} {quoted(sorted(kinds))}")


def non_root(pod: Object) -> Violation | None:
    reason = "runAsNonRoot != true"
    wrong = [name for name, context in contexts(pod) if context.get("runAsNonRoot") is False]
    if wrong:
        return Violation(reason, f"{setters(wrong)} must not set securityContext.runAsNonRoot=false")
    if (pod["spec"].get("securityContext") or {}).get("runAsNonRoot"):
        return None
    silent = containers_with(pod, lambda context: context.get("runAsNonRoot") is None)
    if not silent:
        return None
    return Violation(reason, f"pod or {named('container', silent)} must set securityContext.runAsNonRoot=true")


def run_as_user(pod: Object) -> Violation | None:
    bad = [name for name, context in contexts(pod) if context.get("runAsUser") == 0]
    return Violation("runAsUser=0", f"{setters(bad)} must not set runAsUser=0") if bad else None


def seccomp(pod: Object) -> Violation | None:
    wrong = forbidden_seccomp(pod)
    if wrong or (pod["spec"].get("securityContext") or {}).get("seccompProfile") is not None:
        return wrong
    silent = containers_with(pod, lambda context: context.get("seccompProfile") is None)
    if not silent:
        return None
    wanted = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {named('container', silent)} must set {wanted}")
