"""Validates updates of a pod: images, a shorter deadline, more tolerations, fewer gates; little else may change.

The new spec is made to look like the old one in everything that may differ; what differs then is forbidden
(ValidatePodUpdate). Resources change through the resize subresource, ephemeral containers through theirs. The placement of a
gated pod may only become narrower: more node labels, more conditions in each node selector term (KEP-3838). Affinity between
pods stays, as it may have been completed from matchLabelKeys when the pod was made.
"""

from __future__ import annotations

from control.patch.json_patch import identity
from control.registry.changes import differences, same
from control.registry.checks import MAX_INT32, Errors
from control.registry.core.pod.annotations import MIRROR, validate_annotation_changes, validate_annotations
from control.registry.core.pod.placement import HARD
from control.registry.core.pod.spec import validate_pod_spec
from kube.errors import FieldError, forbidden_field, invalid_value
from kube.json_object import Object


def validate_gated_placement(spec: Object, before: Object) -> Errors:
    errors: Errors = []
    now, was = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(now.get(key) != value for key, value in was.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(invalid_value("spec.nodeSelector", now, detail))
    terms, terms_before = (_node_terms(s) for s in (spec, before))
    path = f"spec.affinity.nodeAffinity.{HARD}.nodeSelectorTerms"
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
    found: list[Object] = (affinity.get(HARD) or {}).get("nodeSelectorTerms") or []
    return found


_UPDATABLE = ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    )
)
_KINDS = ("containers", "initContainers")


def validate_update(obj: Object, old: Object) -> Errors:
    """Check a pod update against the pod as it is."""
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    errors = validate_whole(obj) + _annotations(obj, old)
    for kind in _KINDS:
        if len(spec.get(kind) or ()) != len(before.get(kind) or ()):
            return [*errors, forbidden_field(f"spec.{kind}", "pod updates may not add or remove containers")]
    deadline = _deadline(spec, before)
    errors += deadline
    if deadline and spec.get("activeDeadlineSeconds") is not None:
        return errors
    errors += _tolerations(spec, before)
    errors += _gates(spec, before)
    if before.get("schedulingGates"):
        errors += validate_gated_placement(spec, before)
    masked = _masked(spec, before)
    if not same(masked, before):
        errors.append(_forbidden(f"pod updates may not change fields other than {_UPDATABLE}", before, masked))
    return errors


def validate_whole(obj: Object) -> Errors:
    """Check a pod's spec and the annotations that mean something, as after every change of them."""
    spec, annotations = obj.get("spec") or {}, _annotations_of(obj)
    return validate_annotations(annotations, spec, "metadata.annotations") + validate_pod_spec(spec)


def validate_annotation_update(obj: Object, old: Object) -> Errors:
    """Check a change of a pod's annotations alone, by a Binding."""
    spec = obj.get("spec") or {}
    return validate_annotations(_annotations_of(obj), spec, "metadata.annotations") + _annotations(obj, old)


def _annotations_of(obj: Object) -> Object:
    found: Object = (obj.get("metadata") or {}).get("annotations") or {}
    return found


def _annotations(obj: Object, old: Object) -> Errors:
    return validate_annotation_changes(_annotations_of(obj), _annotations_of(old))


def validate_ephemeral_update(obj: Object, old: Object) -> Errors:
    """Check an update through the ephemeralcontainers subresource: they are added, never changed or removed."""
    now, before = ((o.get("spec") or {}).get("ephemeralContainers") or [] for o in (obj, old))
    path = "spec.ephemeralContainers"
    if MIRROR in _annotations_of(old):
        return [forbidden_field("[]", "static pods do not support ephemeral containers")]
    by_name = {c.get("name"): c for c in now}
    errors = validate_whole(obj) + _annotations(obj, old)
    for container in before:
        name = container.get("name", "")
        if name not in by_name:
            errors.append(forbidden_field(path, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif not same(by_name[name], container):
            lines = differences(container, by_name[name])
            detail = "\n".join([f'existing ephemeral containers "{name}" may not be changed', *lines])
            errors.append(forbidden_field(path, detail))
    return errors


def _deadline(spec: Object, before: Object) -> Errors:
    now, was, path = (
        spec.get("activeDeadlineSeconds"),
        before.get("activeDeadlineSeconds"),
        "spec.activeDeadlineSeconds",
    )
    if now is not None:
        if not 0 <= now <= MAX_INT32:
            return [invalid_value(path, now, f"must be between 0 and {MAX_INT32}, inclusive")]
        if was is not None and was < now:
            return [invalid_value(path, now, "must be less than or equal to previous value")]
    elif was is not None:
        return [invalid_value(path, now, "must not update from a positive integer to nil value")]
    return []


def _tolerations(spec: Object, before: Object) -> Errors:
    def kept(given: Object) -> set[frozenset[tuple[str, object]]]:
        # How long a taint is borne may change.
        tolerations = given.get("tolerations") or ()
        return {frozenset((k, v) for k, v in t.items() if k != "tolerationSeconds") for t in tolerations}

    if kept(before) <= kept(spec):
        return []
    return [forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")]


def _gates(spec: Object, before: Object) -> Errors:
    old_gates = {g.get("name") for g in before.get("schedulingGates") or ()}
    return [
        forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for index, gate in enumerate(spec.get("schedulingGates") or ())
        if gate.get("name") not in old_gates
    ]


def _masked(spec: Object, before: Object) -> Object:
    """Return the new spec with the old values of everything that may change."""
    masked: Object = dict(spec)
    for kind in _KINDS:
        if spec.get(kind):
            masked[kind] = [
                {**now, "image": was.get("image")} for now, was in zip(spec[kind], before[kind], strict=True)
            ]
    keys = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if before.get("schedulingGates"):
        # A gated pod has not been placed, so its placement may still be narrowed.
        keys.append("nodeSelector")
        restore_node_affinity(masked, before)
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        keys.append("terminationGracePeriodSeconds")
    for key in keys:
        if key in before:
            masked[key] = before[key]
        else:
            masked.pop(key, None)
    return masked


def _forbidden(detail: str, before: Object, after: Object) -> FieldError:
    lines = differences(before, after)
    return forbidden_field("spec", "\n".join([detail, *lines]))
