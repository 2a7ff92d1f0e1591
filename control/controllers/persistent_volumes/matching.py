"""Selects the PersistentVolume for a claim.

A volume that names the claim is its own; else class, mode, access modes, size and selector must fit, and of those that do the
smallest is taken. How many claims there are, and what their selectors ask for, is the users' choice: a selector is read only
where a volume fits otherwise, and once for each claim. Upstream: component-helpers/storage/volume (FindMatchingVolume).
"""

from __future__ import annotations

from collections.abc import Iterable

from control import compiled_selectors
from control.controllers.turns import Turn, selects
from kube.api import core_v1
from kube.volume_binding import class_of, meant_for, other_mode, size_of, wanted_size


async def find_match(
    claim: core_v1.PersistentVolumeClaim, volumes: Iterable[core_v1.PersistentVolume], *, only_named: bool = False
) -> core_v1.PersistentVolume | None:
    """Return the volume that a claim should get; `only_named`: one that names it."""
    turn, wanted, modes = Turn(), wanted_size(claim), set(claim.spec.access_modes)
    fitting: list[tuple[int, core_v1.PersistentVolume]] = []
    for volume in volumes:
        await turn.took()
        if other_mode(volume, claim) or volume.metadata.deletion_timestamp is not None:
            continue
        if volume.spec.claim_ref is not None:
            if meant_for(volume, claim) and size_of(volume) >= wanted:
                return volume
        elif not only_named and _free(volume, claim) and modes <= set(volume.spec.access_modes):
            if (size := size_of(volume)) >= wanted:
                fitting.append((size, volume))
    return await _selected(claim, [volume for _, volume in sorted(fitting, key=lambda pair: pair[0])], turn)


def _free(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    return volume.status.phase in ("Available", None) and class_of(volume) == class_of(claim)


async def _selected(
    claim: core_v1.PersistentVolumeClaim, volumes: list[core_v1.PersistentVolume], turn: Turn
) -> core_v1.PersistentVolume | None:
    """Return the first volume that the claim's selector selects."""
    meta, source = claim.metadata, claim.spec.selector
    if source is None or not volumes:
        return next(iter(volumes), None)
    version = {"uid": meta.uid, "generation": meta.generation}
    selector = await compiled_selectors.kept.of(meta.namespace or "", version, "spec.selector", lambda: source)
    for volume in volumes:
        if await selects(selector, volume.metadata.labels, turn):
            return volume
    return None
