"""Outcome of a pending binding of a claim: bound, not yet, or failed."""

from __future__ import annotations

import pytest

from control.scheduler.framework import BindingFailed
from control.scheduler.plugins.pending_bindings import PendingBinding
from kube.api import core_v1, meta_v1
from kube.volume_binding import BIND_COMPLETED, SELECTED_NODE

HERE = {SELECTED_NODE: "n"}
BOUND = {BIND_COMPLETED: "yes"}


def claim(version: int = 2, uid: str = "c", volume: str = "", **annotations: str) -> core_v1.PersistentVolumeClaim:
    metadata = meta_v1.ObjectMeta(name="c", uid=uid, resource_version=str(version), annotations=annotations)
    return core_v1.PersistentVolumeClaim(
        metadata=metadata, spec=core_v1.PersistentVolumeClaimSpec(volume_name=volume or None)
    )


def volume(version: int = 2, uid: str = "v", of: str = "c") -> core_v1.PersistentVolume:
    metadata = meta_v1.ObjectMeta(name="v", uid=uid, resource_version=str(version))
    reference = core_v1.ObjectReference(name="c", uid=of) if of else None
    return core_v1.PersistentVolume(metadata=metadata, spec=core_v1.PersistentVolumeSpec(claim_ref=reference))


PROVISIONED = PendingBinding(claim(**HERE), None)
CHOSEN = PendingBinding(claim(), volume())


@pytest.mark.parametrize(
    ("binding", "now", "its", "bound"),
    [
        (PROVISIONED, claim(**HERE), None, False),
        (PROVISIONED, claim(version=1), None, False),
        (PROVISIONED, claim(3, volume="v", **BOUND), None, True),
        (CHOSEN, claim(), volume(), False),
        (CHOSEN, claim(), volume(version=1, of=""), False),
        (CHOSEN, claim(3, volume="v", **BOUND), volume(), True),
    ],
)
def test_a_binding_is_complete_when_the_claim_is_bound(
    binding: PendingBinding, now: core_v1.PersistentVolumeClaim, its: core_v1.PersistentVolume | None, bound: bool
) -> None:
    assert binding.is_bound(now, its, "n") is bound


@pytest.mark.parametrize(
    ("binding", "now", "its", "why"),
    [
        (PROVISIONED, None, None, "deleted"),
        (PROVISIONED, claim(3, uid="other"), None, "deleted"),
        (PROVISIONED, claim(3), None, 'selectedNode annotation reset for PVC "c"'),
        (PROVISIONED, claim(3, **{SELECTED_NODE: "m"}), None, 'provisioning failed for PVC "c"'),
        (CHOSEN, claim(), None, "deleted"),
        (CHOSEN, claim(), volume(3, uid="other"), "deleted"),
        (CHOSEN, claim(), volume(3, of=""), 'ClaimRef got reset for pv "v"'),
    ],
)
def test_a_binding_that_was_reverted_fails(
    binding: PendingBinding, now: core_v1.PersistentVolumeClaim | None, its: core_v1.PersistentVolume | None, why: str
) -> None:
    with pytest.raises(BindingFailed, match=why):
        binding.is_bound(now, its, "n")
