"""Outcome of a written choice of volumes: bound, not yet, or given back."""

from __future__ import annotations

import pytest

from control.scheduler.framework import BindingFailed
from control.scheduler.plugins.written_choices import WrittenChoice
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


PROVISIONED = WrittenChoice(claim(**HERE), None)
CHOSEN = WrittenChoice(claim(), volume())


@pytest.mark.parametrize(
    ("choice", "now", "its", "settled"),
    [
        (PROVISIONED, claim(**HERE), None, False),
        (PROVISIONED, claim(version=1), None, False),
        (PROVISIONED, claim(3, volume="v", **BOUND), None, True),
        (CHOSEN, claim(), volume(), False),
        (CHOSEN, claim(), volume(version=1, of=""), False),
        (CHOSEN, claim(3, volume="v", **BOUND), volume(), True),
    ],
)
def test_a_choice_is_settled_when_the_claim_is_bound(
    choice: WrittenChoice, now: core_v1.PersistentVolumeClaim, its: core_v1.PersistentVolume | None, settled: bool
) -> None:
    assert choice.settled(now, its, "n") is settled


@pytest.mark.parametrize(
    ("choice", "now", "its", "why"),
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
def test_a_choice_that_was_given_back_fails(
    choice: WrittenChoice, now: core_v1.PersistentVolumeClaim | None, its: core_v1.PersistentVolume | None, why: str
) -> None:
    with pytest.raises(BindingFailed, match=why):
        choice.settled(now, its, "n")
