"""matchLabelKeys and mismatchLabelKeys, written out into label selectors when a pod is made.

Affinity terms and spread constraints may say "pods with my own value of this label": the API server looks the value up once and
adds it to the term's selector, so that everybody who reads the pod sees a plain selector. Keys that the pod has no label for
mean nothing. Upstream: pkg/registry/core/pod (applyMatchLabelKeysAndMismatchLabelKeys).
"""

from __future__ import annotations

from collections.abc import Iterator

from control.patch.json_patch import union
from kube.json_object import Object

_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def write_out(pod: Object) -> None:
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
        yield from found.get(_HARD) or ()
        for weighted in found.get(_SOFT) or ():
            if weighted.get("podAffinityTerm"):
                yield weighted["podAffinityTerm"]
    yield from spec.get("topologySpreadConstraints") or ()
