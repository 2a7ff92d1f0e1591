"""Volumes whose claim is bound to another volume. Upstream: syncVolume and unbindVolume in pv_controller.go. Pure."""

from __future__ import annotations

import msgspec

from kube.api import core_v1
from kube.volume_binding import BOUND_BY_CONTROLLER, PROVISIONED_BY

Volume = core_v1.PersistentVolume


def is_superfluous(volume: Volume) -> bool:
    """Return whether a volume was provisioned for its claim alone and must be deleted if that does not use it."""
    return PROVISIONED_BY in volume.metadata.annotations and volume.spec.persistent_volume_reclaim_policy == "Delete"


def unbound(volume: Volume) -> Volume:
    """Return the volume without its claim; one that a user reserved for a claim loses only the claim's UID."""
    annotations = dict(volume.metadata.annotations)
    claim_ref = volume.spec.claim_ref
    if annotations.pop(BOUND_BY_CONTROLLER, None) is not None:
        claim_ref = None
    elif claim_ref is not None:
        claim_ref = msgspec.structs.replace(claim_ref, uid=None)
    metadata = msgspec.structs.replace(volume.metadata, annotations=annotations)
    return msgspec.structs.replace(
        volume, metadata=metadata, spec=msgspec.structs.replace(volume.spec, claim_ref=claim_ref)
    )
