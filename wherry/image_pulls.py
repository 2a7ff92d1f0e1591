"""Hint for pods whose images cannot be pulled, as on a machine without internet, after `wherry join` and in `wherry status`."""

from __future__ import annotations

from collections.abc import Iterable

from kube.api import core_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from wherry.pod_problems import reason_of

REASONS = frozenset({"ErrImagePull", "ImagePullBackOff"})
SECONDS, POLL_SECONDS = 5.0, 0.5
"""Time that the first pods of a node have to pull their images, and between two requests."""


HINT = (
    "images cannot be pulled: name a mirror in `registries` of /etc/wherry/config.yaml, or load them with "
    "`wherry image load FILE` or `wherry bundle load FILE` (docs/airgap.md)"
)


def fails(pods: Iterable[core_v1.Pod]) -> bool:
    """Return whether a pod waits for an image that cannot be pulled."""
    return any(reason_of(pod) in REASONS for pod in pods)


async def fail_on(client: Client, node_name: str, clock: Clock) -> bool:
    """Return whether an image cannot be pulled on a node, as soon as its pods have images or one has none."""
    deadline = clock.monotonic() + SECONDS
    while True:
        try:
            pods = (await client.list(core_v1.Pod, field_selector=f"spec.nodeName={node_name}")).items
        except StatusError:
            return False
        if fails(pods) or clock.monotonic() >= deadline or not any(map(_starts, pods)):
            return fails(pods)
        await clock.sleep(POLL_SECONDS)


def _starts(pod: core_v1.Pod) -> bool:
    return pod.status.phase == "Pending" and pod.metadata.deletion_timestamp is None
