"""The part of /metrics about the usage of claims (pkg/kubelet/metrics/collectors/volume_stats.go)."""

from __future__ import annotations

from collections.abc import Callable

from agent.metrics.exposition import Text
from agent.usage.model import Filesystem, Snapshot

_FAMILIES: tuple[tuple[str, str, Callable[[Filesystem], int]], ...] = (
    ("capacity_bytes", "Capacity in bytes of the volume", lambda use: use.capacity),
    ("available_bytes", "Number of available bytes in the volume", lambda use: use.available),
    ("used_bytes", "Number of used bytes in the volume", lambda use: use.used),
    ("inodes", "Maximum number of inodes in the volume", lambda use: use.inodes),
    ("inodes_free", "Number of free inodes in the volume", lambda use: use.inodes_free),
    ("inodes_used", "Number of used inodes in the volume", lambda use: use.inodes_used),
)


def text(snapshot: Snapshot) -> str:
    """Write kubelet_volume_stats_*, each claim once however many pods use it."""
    claims = {use.claim: use.filesystem for pod in snapshot.pods for use in pod.persistent if use.claim is not None}
    text = Text()
    for name, what, figure in _FAMILIES:
        samples = [
            ({"namespace": claim[0], "persistentvolumeclaim": claim[1]}, figure(use), 0.0)
            for claim, use in sorted(claims.items())
        ]
        if samples:
            text.family(f"kubelet_volume_stats_{name}", "gauge", what, samples)
    return str(text) if claims else ""
