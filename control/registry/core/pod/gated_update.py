"""Validates placement changes of a gated pod: they may only be narrower.

More node labels, more conditions in each node selector term (KEP-3838). Affinity between pods stays, as it may have been
completed from matchLabelKeys when the pod was made.
"""

from __future__ import annotations

from control.patch.json_patch import identity
from control.registry.checks import Errors
from kube.errors import invalid_value
from kube.json_object import Object

_HARD = "requiredDuringSchedulingIgnoredDuringExecution"


def validate_gated_placement(spec: Object, before: Object) -> Errors:
    errors: Errors = []
    now, was = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(now.get(key) != value for key, value in was.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(invalid_value("spec.nodeSelector", now, detail))
    terms, terms_before = (_node_terms(s) for s in (spec, before))
    path = f"spec.affinity.nodeAffinity.{_HARD}.nodeSelectorTerms"
    if terms_before and len(terms) != len(terms_before):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*errors, invalid_value(path, terms, detail)]
    for index, (term, old) in enumerate(zip(terms, terms_before, strict=False)):
        for key in ("matchExpressions", "matchFields"):
            known = set(map(identity, term.get(key) or ()))
            if any(identity(part) not in known for part in old.get(key) or ()):
                detail = "only additions are allowed (no mutations or deletions)"
                errors.append(invalid_value(f"{path}[{index}]", term, detail))
                break
    return errors


def restore_node_affinity(spec: Object, before: Object) -> None:
    """Make a spec's node affinity what it was, so that the rest can be compared."""
    affinity, was = dict(spec.get("affinity") or {}), (before.get("affinity") or {}).get("nodeAffinity")
    affinity.pop("nodeAffinity", None)
    if was is not None:
        affinity["nodeAffinity"] = was
    spec["affinity"] = affinity


def _node_terms(spec: Object) -> list[Object]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    found: list[Object] = (affinity.get(_HARD) or {}).get("nodeSelectorTerms") or []
    return found
