"""The condition KubernetesAPIApprovalPolicyConformant of definitions in protected groups (*.k8s.io)."""

from __future__ import annotations

from control.registry.apiextensions.validation import APPROVED, PROTECTED
from kube import urls
from kube.json_object import Object

CONDITION = "KubernetesAPIApprovalPolicyConformant"


def approval_condition(definition: Object) -> Object | None:
    """Return the condition, None if the group is not protected."""
    group = definition["spec"]["group"]
    if not f".{group}".endswith(PROTECTED):
        return None
    text = (definition["metadata"].get("annotations") or {}).get(APPROVED) or ""
    if not text:
        status, reason = "False", "MissingAnnotation"
        message = (
            f'protected groups must have approval annotation "{APPROVED}", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
    elif text.startswith("unapproved"):
        status, reason, message = "False", "UnapprovedAnnotation", f'not approved: "{text}"'
    elif _is_url(text):
        status, reason, message = "True", "ApprovedAnnotation", f"approved in {text}"
    else:
        status, reason = "False", "InvalidAnnotation"
        message = (
            f'protected groups must have approval annotation "{APPROVED}" with either a URL or a reason starting with '
            '"unapproved", see https://github.com/kubernetes/enhancements/pull/1111'
        )
    return {"type": CONDITION, "status": status, "reason": reason, "message": message}


def _is_url(text: str) -> bool:
    try:
        url = urls.split(text)
    except ValueError:
        return False
    return bool(url.scheme and url.netloc)
