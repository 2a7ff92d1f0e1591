"""Kinds that only some pods depend on: one that cannot be listed delays the pods that depend on it, and no others.

Volumes need claims, volumes, classes and drivers, device claims need claims, slices and device classes. The scheduler waits a
moment for their first lists, because a pod that is tried too early waits for its back-off.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from control.scheduler.framework import PluginError
from kube.api import core_v1
from kube.clock import Clock
from kube.informer import Informer, wait_listed

log = logging.getLogger(__name__)
WAIT_SECONDS = 10.0


class ListedKinds:
    """The informers of storage, of devices, and of what preemption depends on, which `Budgets.check_listed` checks."""

    def __init__(
        self, storage: Sequence[Informer[Any]], devices: Sequence[Informer[Any]], preemption: Sequence[Informer[Any]]
    ) -> None:
        self._storage, self._devices, self._preemption = storage, devices, preemption

    async def wait(self, clock: Clock) -> None:
        """Wait for first lists, but not for long."""
        late = await wait_listed((*self._storage, *self._devices, *self._preemption), clock, WAIT_SECONDS)
        if late:
            log.warning("the scheduler starts without %s: pods that depend on them wait", _named(late))

    def check(self, pod: core_v1.Pod) -> None:
        """Raise PluginError for a pod that depends on a kind without a first list."""
        needed: list[Informer[Any]] = []
        if any(v.persistent_volume_claim or v.ephemeral or v.csi for v in pod.spec.volumes):
            needed += self._storage
        if pod.spec.resource_claims:
            needed += self._devices
        missing = [informer for informer in needed if not informer.synced]
        if missing:
            raise PluginError(f"{_named(missing)} cannot be listed yet")


def _named(informers: Sequence[Informer[Any]]) -> str:
    return ", ".join(sorted(informer.kind.__name__ for informer in informers))
