"""Tracks which drivers require no attachments, and for how long their existing attachments stay.

Pods that wait for an attachment when their driver stops requiring it start in that time with the one that they waited for:
drivers may refuse to stage a volume that they have detached. Upstream's controller checks once a minute
(DesiredStateOfWorldPopulatorLoopSleepPeriod).
"""

from __future__ import annotations

from kube.api import storage_v1
from kube.clock import Clock
from kube.informer import Change

DRIVER_CHANGE_SECONDS = 60.0


class AttachRequirements:
    """Drivers by their CSIDriver objects; a driver without one requires attachments."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unrequired: dict[str, float] = {}
        """Driver: when it was first found that it requires no attachments."""

    def change(self, change: Change[storage_v1.CSIDriver]) -> None:
        """Take over a change of a CSIDriver object."""
        if change.type == "DELETED" or change.new.spec.attach_required is not False:
            self._unrequired.pop(change.key, None)
        else:
            self._unrequired.setdefault(change.key, self._clock.monotonic())

    def seconds_left(self, driver: str) -> float | None:
        """Return for how long existing attachments of a driver stay, None if it requires attachments."""
        since = self._unrequired.get(driver)
        return None if since is None else max(0.0, since + DRIVER_CHANGE_SECONDS - self._clock.monotonic())
