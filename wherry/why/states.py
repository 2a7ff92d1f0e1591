"""The state of an object in a few words, as `kubectl get` shows it, and its age."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kube.api import core_v1
from wherry.pod_problems import reason_of
from wherry.why.times import ago, parsed


def state(obj: Any, now: datetime) -> str:
    """Return the state of an object and when it was created."""
    age = f"created {ago(parsed(obj.metadata.creation_timestamp), now)}"
    return f"{_words(obj)}, {age}"


def _words(obj: Any) -> str:
    if isinstance(obj, core_v1.Pod):
        return reason_of(obj) or ("Succeeded" if obj.status.phase == "Succeeded" else "Ready")
    if obj.metadata.deletion_timestamp is not None:
        return "Terminating"
    status = getattr(obj, "status", None)
    wanted, ready = getattr(getattr(obj, "spec", None), "replicas", None), getattr(status, "ready_replicas", None)
    if wanted is not None:
        return f"{ready or 0} of {wanted} replicas Ready"
    phase = getattr(status, "phase", None)
    if phase:
        return str(phase)
    true = [each.type for each in getattr(status, "conditions", None) or () if each.status == "True"]
    return ", ".join(true) or "exists"
