"""Fields of a new pod that the server writes out, so that everybody who reads the pod sees them.

matchLabelKeys and mismatchLabelKeys of affinity terms and spread constraints mean pods with the pod's own value of a label:
the value is looked up once and added to the term's selector. Keys that the pod has no label for mean nothing.

AppArmor profiles were annotations before they were fields: those of a new pod become fields of its containers. The
container's own field counts first, then its annotation, then the pod's field, so an annotation is written into a container
that has no profile, where the pod's is another one. What is no valid profile stays an annotation.
Upstream: applyMatchLabelKeysAndMismatchLabelKeys and applyAppArmorVersionSkew of pkg/registry/core/pod/strategy.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from control.patch.json_patch import union
from control.registry.core.pod.annotations import APPARMOR, containers_with_paths
from control.registry.core.pod.placement import HARD, SOFT
from control.registry.core.pod.security import LONGEST_PROFILE
from control.registry.field_values import field_value
from kube.json_object import Object


def write_label_keys(pod: Object) -> None:
    """Complete the selectors of a new pod in place."""
    spec, labels = pod.get("spec") or {}, (pod.get("metadata") or {}).get("labels") or {}
    for term in _terms(spec):
        selector = term.get("labelSelector")
        if selector is None:
            continue
        wanted = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for key in term.get(field) or ()
            if key in labels
        ]
        if wanted:
            selector["matchExpressions"] = union(selector.get("matchExpressions") or (), wanted)


def _terms(spec: Object) -> Iterator[Object]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        found = affinity.get(kind) or {}
        yield from found.get(HARD) or ()
        for weighted in found.get(SOFT) or ():
            if weighted.get("podAffinityTerm"):
                yield weighted["podAffinityTerm"]
    yield from spec.get("topologySpreadConstraints") or ()


OLD_APPARMOR = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_LOCAL = "localhost/"


def profile_of(annotation: str) -> Object | None:
    """Return the field equivalent to an annotation, None if there is none."""
    if annotation.startswith(_LOCAL) and annotation != _LOCAL:
        return {"type": "Localhost", "localhostProfile": annotation.removeprefix(_LOCAL)}
    kind = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}.get(annotation)
    return {"type": kind} if kind else None


def write_profiles(pod: Object) -> None:
    """Write the annotations of a new pod into its containers."""
    for container, annotation in _annotated(pod):
        profile = _valid(annotation)
        if profile is not None and profile != _shared(pod):
            container["securityContext"] = {**(container.get("securityContext") or {}), "appArmorProfile": profile}


def skew_warnings(pod: Object) -> list[str]:
    """Return the warnings for annotations of a new pod without equivalent fields, before these are set."""
    return [
        f"metadata.annotations[{APPARMOR}{container.get('name')}]: {OLD_APPARMOR}"
        for container, annotation in _annotated(pod)
        if (profile := _valid(annotation)) is None or profile != _shared(pod)
    ]


def _annotated(pod: Object) -> Iterator[tuple[Object, str]]:
    """Yield containers that have an annotation and no profile of their own, with the annotation."""
    spec, annotations = pod.get("spec") or {}, (pod.get("metadata") or {}).get("annotations") or {}
    if (spec.get("os") or {}).get("name") == "windows":
        return
    for container, _ in containers_with_paths(spec, ""):
        annotation = annotations.get(f"{APPARMOR}{container.get('name')}")
        if annotation is not None and (container.get("securityContext") or {}).get("appArmorProfile") is None:
            yield container, annotation


def _shared(pod: Object) -> Object | None:
    found: Object | None = field_value(pod, "spec.securityContext.appArmorProfile")
    return found


def _valid(annotation: str) -> Object | None:
    profile = profile_of(annotation)
    name = (profile or {}).get("localhostProfile") or ""
    return None if name != name.strip() or len(name.encode()) > LONGEST_PROFILE else profile
