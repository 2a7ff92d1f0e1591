"""Finalizer of a deleted definition: upstream's, so that its objects are deleted first."""

from __future__ import annotations

from datetime import datetime

from control.registry.apiextensions.naming import set_condition
from kube.json_object import Object

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def add_finalizer(definition: Object, now: datetime) -> None:
    """Prepare a definition for its deletion: its finalizer, and the condition Terminating."""
    metadata = definition["metadata"]
    if metadata.get("deletionTimestamp"):
        return
    finalizers = metadata.setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    new = {
        "type": "Terminating",
        "status": "True",
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    set_condition(definition.setdefault("status", {}), new, now)
