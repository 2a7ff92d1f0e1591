"""VolumeAttributesClasses of claims and volumes in the scheduler: a volume with another class does not match."""

from __future__ import annotations

import pytest

from control.scheduler.plugins.volume_matching import VolumeAffinities, VolumeMatcher
from control.scheduler.steps import Steps
from kube.api import core_v1, meta_v1

from .clusters import node


def volume(name: str, attributes: str | None, owner: str | None = None) -> core_v1.PersistentVolume:
    spec = core_v1.PersistentVolumeSpec(
        capacity={"storage": "1Gi"}, access_modes=["ReadWriteOnce"], volume_attributes_class_name=attributes
    )
    if owner is not None:
        spec.claim_ref = core_v1.ObjectReference(namespace="default", name=owner)
    status = core_v1.PersistentVolumeStatus(phase="Available")
    return core_v1.PersistentVolume(metadata=meta_v1.ObjectMeta(name=name), spec=spec, status=status)


def claim(name: str, attributes: str | None) -> core_v1.PersistentVolumeClaim:
    return core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=core_v1.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            volume_attributes_class_name=attributes,
            resources=core_v1.VolumeResourceRequirements(requests={"storage": "1Gi"}),
        ),
    )


def matched(claims: list[core_v1.PersistentVolumeClaim], volumes: list[core_v1.PersistentVolume]) -> list[str]:
    matcher = VolumeMatcher(claims, volumes, VolumeAffinities(), lambda name: False, Steps(1000))
    return list(matcher.on(node("a")).values())


def test_claims_get_volumes_with_their_volume_attributes_class() -> None:
    volumes = [volume("gold", "gold"), volume("none", None)]
    assert matched([claim("a", "gold"), claim("b", None)], volumes) == ["gold", "none"]
    assert matched([claim("a", "silver"), claim("b", "")], volumes) == ["", "none"]


@pytest.mark.parametrize(("attributes", "found"), [("gold", "v"), ("silver", ""), (None, "")])
def test_a_volume_that_names_the_claim_has_the_claims_volume_attributes_class(
    attributes: str | None, found: str
) -> None:
    assert matched([claim("a", attributes)], [volume("v", "gold", "a")]) == [found]
