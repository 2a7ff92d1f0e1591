"""Maps changes of a node's conditions to the reasons of their events (pkg/kubelet/nodestatus). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube.api import core_v1

_REASONS = {
    ("Ready", "True"): "NodeReady",
    ("Ready", "False"): "NodeNotReady",
    ("MemoryPressure", "True"): "NodeHasInsufficientMemory",
    ("MemoryPressure", "False"): "NodeHasSufficientMemory",
    ("DiskPressure", "True"): "NodeHasDiskPressure",
    ("DiskPressure", "False"): "NodeHasNoDiskPressure",
    ("PIDPressure", "True"): "NodeHasInsufficientPID",
    ("PIDPressure", "False"): "NodeHasSufficientPID",
}


def reasons(old: Sequence[core_v1.NodeCondition], new: Sequence[core_v1.NodeCondition]) -> Iterator[str]:
    """Yield the reason of each condition that is another one now."""
    before = {condition.type: condition.status for condition in old}
    for condition in new:
        reason = _REASONS.get((condition.type, condition.status))
        # A new node that is not ready yet needs no event.
        first = reason == "NodeNotReady" and condition.type not in before
        if reason and before.get(condition.type) != condition.status and not first:
            yield reason
