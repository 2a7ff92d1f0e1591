"""Selects the PersistentVolume for a claim.

A volume that names the claim is selected; else the smallest of those whose classes, mode, access modes, size and selector
match. Users choose the number of claims and the size of selectors, so a selector is parsed only if a volume matches
otherwise, and once for each claim. Upstream: component-helpers/storage/volume (FindMatchingVolume).
"""

from __future__ import annotations

from collections.abc import Iterable

from control.controllers.step_counter import StepCounter, selects
from control.interfaces import compiled_selectors
from kube.api import core_v1
from kube.volume_binding import class_of, meant_for, other_attributes_class, other_mode, size_of, wanted_size


async def find_match(
    claim: core_v1.PersistentVolumeClaim, volumes: Iterable[core_v1.PersistentVolume], *, only_named: bool = False
) -> core_v1.PersistentVolume | None:
    """Return the volume for a claim; with `only_named` only one that names it."""
    counter, wanted, modes = StepCounter(), wanted_size(claim), set(claim.spec.access_modes)
    fitting: list[tuple[int, core_v1.PersistentVolume]] = []
    for volume in volumes:
        await counter.count()
        if other_mode(volume, claim) or other_attributes_class(volume, claim):
            continue
        if volume.metadata.deletion_timestamp is not None:
            continue
        if volume.spec.claim_ref is not None:
            if meant_for(volume, claim) and size_of(volume) >= wanted:
                return volume
        elif not only_named and _free(volume, claim) and modes <= set(volume.spec.access_modes):
            if (size := size_of(volume)) >= wanted:
                fitting.append((size, volume))
    return await _selected(claim, [volume for _, volume in sorted(fitting, key=lambda pair: pair[0])], counter)


def _free(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    return volume.status.phase in ("Available", None) and class_of(volume) == class_of(claim)


async def _selected(
    claim: core_v1.PersistentVolumeClaim, volumes: list[core_v1.PersistentVolume], counter: StepCounter
) -> core_v1.PersistentVolume | None:
    """Return the first volume that the claim's selector matches."""
    meta, source = claim.metadata, claim.spec.selector
    if source is None or not volumes:
        return next(iter(volumes), None)
    version = {"uid": meta.uid, "generation": meta.generation}
    selector = await compiled_selectors.kept.of(meta.namespace or "", version, "spec.selector", lambda: source)
    for volume in volumes:
        if await selects(selector, volume.metadata.labels, counter):
            return volume
    return None
