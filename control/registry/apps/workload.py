"""Checks that workloads share: the selector is needed, chooses the template's pods, and does not change."""

from __future__ import annotations

from control.registry.checks import Errors, FieldErrors, is_empty, label_selector, selects
from control.registry.core.pod.spec import validate_template
from kube.errors import FieldError, forbidden_field, invalid_value, not_supported, required
from kube.json_object import Object

MISMATCH = "`selector` does not match template `labels`"


def validate_selector(spec: Object, path: str, word: str) -> Errors:
    """Check that there is a selector and that it does not choose everything; `word` names the kind in the message."""
    selector = spec.get("selector")
    if selector is None:  # that of a DaemonSet matches nothing then, which is the error
        return [] if word == "daemonset" else [required(f"{path}.selector")]
    errors = label_selector(selector, f"{path}.selector")
    if is_empty(selector):
        errors.append(invalid_value(f"{path}.selector", selector, f"empty selector is invalid for {word}"))
    return errors


def validate_selected_template(spec: Object, path: str, word: str = "") -> FieldErrors:
    """Check the template, that the selector chooses it, and that its pods run for ever; `word` names the kind."""
    template, selector = spec.get("template") or {}, spec.get("selector")
    where = f"{path}.template"
    labels = (template.get("metadata") or {}).get("labels") or {}
    wrong = label_selector(selector, "")
    if wrong and word != "DaemonSet":  # the template is not checked then, except for what stands below
        yield invalid_value(f"{path}.selector", selector, "" if word else "invalid label selector")
        if not word:
            return
    else:
        if not wrong and not is_empty(selector) and not selects(selector, labels):
            yield invalid_value(f"{where}.metadata.labels", labels or None, MISMATCH)
        yield from validate_template(template, where)
    pod = template.get("spec") or {}
    if pod.get("restartPolicy") not in (None, "", "Always"):
        yield not_supported(f"{where}.spec.restartPolicy", pod["restartPolicy"], ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {word or 'ReplicaSet'} is not Supported"
        yield forbidden_field(f"{where}.spec.activeDeadlineSeconds", detail)


def validate_counts(status: Object, *keys: str, ready: str = "readyReplicas") -> FieldErrors:
    """Check that no more pods are counted than there are, and no more are available than `ready`, as the message names it."""
    for key in keys:
        if status.get(key, 0) > status.get("replicas", 0):
            yield invalid_value(f"status.{key}", status.get(key, 0), "cannot be greater than status.replicas")
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        yield invalid_value("status.availableReplicas", available, f"cannot be greater than {ready}")


def unsupported_strategy(strategy: Object, path: str, supported: tuple[str, ...]) -> FieldError:
    """Return the error for an unknown type of a strategy, with the strategy as upstream shows it."""
    rolling = strategy.get("rollingUpdate")
    shown: Object = {"Type": strategy.get("type") or "", "RollingUpdate": None}
    if rolling is not None:
        shown["RollingUpdate"] = {
            key[0].upper() + key[1:]: rolling.get(key, 0) for key in ("maxUnavailable", "maxSurge")
        }
    return not_supported(path, shown, supported)


def not_decremented(status: Object, before: Object) -> Errors:
    """Check that a status's count of collisions does not go down."""
    count = status.get("collisionCount") or 0
    if count >= (before.get("collisionCount") or 0):
        return []
    return [invalid_value("status.collisionCount", count, "cannot be decremented")]
