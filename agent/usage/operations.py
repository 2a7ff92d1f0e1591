"""Counts the calls to the runtime, their durations and errors, under upstream's metric names."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

BUCKETS = tuple(round(0.005 * 2.5**n, 12) for n in range(14))

# Operation types that are not the call's name in small letters (pkg/kubelet/kuberuntime/instrumented_services.go).
_NAMES = {
    "RunPodSandbox": "run_podsandbox",
    "StopPodSandbox": "stop_podsandbox",
    "RemovePodSandbox": "remove_podsandbox",
    "PodSandboxStatus": "podsandbox_status",
    "ListPodSandbox": "list_podsandbox",
    "UpdateContainerResources": "update_container",
    "UpdatePodSandboxResources": "update_podsandbox_resources",
    "ListContainerStats": "list_container_stats",
    "ListPodSandboxStats": "list_podsandbox_stats",
    "ImageFsInfo": "image_fs_info",
}


@dataclass(slots=True)
class Operation:
    """One kind of call; `buckets` count calls by their duration, not cumulatively."""

    count: int = 0
    errors: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))


class Operations:
    """Counts the calls to the runtime; `record` is called after each."""

    def __init__(self) -> None:
        self.by_type: dict[str, Operation] = {}
        self.failures: Counter[tuple[str, str]] = Counter()
        """By operation type and gRPC code."""

    def record(self, rpc: str, seconds: float, code: str) -> None:
        """Count a call by its name as RunPodSandbox; `code` is "" where it succeeded."""
        name = operation_type(rpc)
        operation = self.by_type.setdefault(name, Operation())
        operation.count += 1
        operation.seconds += seconds
        operation.buckets[bisect_left(BUCKETS, seconds)] += 1
        if code:
            operation.errors += 1
            self.failures[name, code] += 1


def operation_type(rpc: str) -> str:
    """Return upstream's name of a call: create_container of CreateContainer."""
    if rpc in _NAMES:
        return _NAMES[rpc]
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in rpc).lstrip("_")
