"""Events on a claim with the binding mode WaitForFirstConsumer: the pods it waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from control.controllers.pods import is_terminal
from kube.api import core_v1
from kube.volume_binding import claim_names


def unplaced(pod: core_v1.Pod) -> list[str]:
    """Index function: the keys of the claims that a pod without a node has."""
    if pod.spec.node_name or is_terminal(pod):
        return []
    return [f"{pod.metadata.namespace}/{name}" for name in claim_names(pod)]


def waits_for(pods: Iterable[core_v1.Pod]) -> tuple[str, str]:
    """Return (reason, message) for a claim that these pods, which have no node yet, use."""
    names = sorted(pod.metadata.name or "" for pod in pods)
    if not names:
        return "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
    noun = "pods" if len(names) > 1 else "pod"
    return "WaitForPodScheduled", f"waiting for {noun} {','.join(names)} to be scheduled"
