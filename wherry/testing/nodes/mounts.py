"""Checks of the objects that a simulated pod's volumes need: they must exist before the pod starts, as on a kubelet.

Only errors are computed: volumes have no contents.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from agent.backoff import BackOff
from agent.podspec.environment import References
from kube.api import core_v1
from kube.client import Client
from wherry.testing.nodes.stepped import Happened

if TYPE_CHECKING:
    from agent.volumes.payload import VolumeError

BACK_OFF = (0.5, 122.0)
"""Seconds between attempts, as upstream."""


class Mounts:
    """The volumes of one pod. `client` acts as the pod's node. Times are seconds since the epoch."""

    def __init__(self, references: References, client: Client) -> None:
        self._references, self._client = references, client
        self._back_off = BackOff(*BACK_OFF)
        self.done = False
        """Everything is mounted."""
        self.retry_at: float | None = None
        """Time of the next attempt after a failure."""

    def unmount(self) -> None:
        """Forget all mounts, as a node does that loses power."""
        self.done, self.retry_at = False, None

    def retry(self) -> None:
        """Try again now: an object has changed."""
        self.retry_at = None

    async def set_up(self, pod: core_v1.Pod, now: float) -> list[Happened]:
        """Mount the volumes unless that is done or has to wait for its back-off; return an event for each that fails."""
        if self.done or (self.retry_at is not None and now < self.retry_at):
            return []
        failures = [await self._failure(pod, volume) for volume in _used(pod)]
        events = [Happened("Warning", "FailedMount", failure) for failure in failures if failure]
        self.done = not events
        self.retry_at = now + self._back_off.next("", now) if events else None
        return events

    async def _failure(self, pod: core_v1.Pod, volume: core_v1.Volume) -> str:
        """Return the message of a volume that cannot be mounted, "" for one that can."""
        # Imported with the first volume: the start of a cluster does not wait for it.
        from agent.volumes.claims import ClaimReader, claim_of
        from agent.volumes.payload import Sources, VolumeError, volume_payload

        try:
            if claim_of(pod, volume) is not None:
                await ClaimReader(self._client).read(pod, volume)
            elif volume.config_map or volume.secret or volume.downward_api or volume.projected:
                volume_payload(pod, volume, Sources(self._references, tokens=defaultdict(str)))
        except VolumeError as error:
            return _message(volume, error)
        return ""


def _used(pod: core_v1.Pod) -> list[core_v1.Volume]:
    if not pod.spec.volumes:
        return []
    from agent.volumes.used import used_volumes

    used = used_volumes(pod)
    return [volume for volume in pod.spec.volumes if volume.name in used]


def _message(volume: core_v1.Volume, error: VolumeError) -> str:
    from agent.volumes.pod_volumes import MountError

    return str(MountError(error.name or volume.name, str(error), error.step))
