"""VolumeAttributesClasses of claims and volumes in the PV binder: both must name the same one, and binding records it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.controllers.persistent_volumes.controller import PersistentVolumeController
from control.controllers.persistent_volumes.matching import find_match
from kube.api import core_v1, meta_v1
from kube.volume_binding import BIND_COMPLETED, mismatch
from tests.support.clock import FakeClock, settle
from tests.support.product_world import World
from tests.support.working import working

CLAIM = core_v1.ObjectReference(api_version="v1", kind="PersistentVolumeClaim", namespace="default", name="c", uid="u")


def volume(name: str, attributes: str | None, **spec: Any) -> core_v1.PersistentVolume:
    found = {"capacity": {"storage": "1Gi"}, "access_modes": ["ReadWriteOnce"], **spec}
    return core_v1.PersistentVolume(
        metadata=meta_v1.ObjectMeta(name=name, uid=name),
        spec=core_v1.PersistentVolumeSpec(volume_attributes_class_name=attributes, **found),
        status=core_v1.PersistentVolumeStatus(phase="Available"),
    )


def claim(attributes: str | None, phase: str = "Pending", current: str | None = None) -> core_v1.PersistentVolumeClaim:
    return core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name="c", namespace="default", uid="u"),
        spec=core_v1.PersistentVolumeClaimSpec(
            storage_class_name="",
            access_modes=["ReadWriteOnce"],
            volume_attributes_class_name=attributes,
            resources=core_v1.VolumeResourceRequirements(requests={"storage": "1Gi"}),
        ),
        status=core_v1.PersistentVolumeClaimStatus(phase=phase, current_volume_attributes_class_name=current),
    )


@pytest.mark.parametrize(("requested", "found"), [("gold", "gold"), ("silver", None), (None, "none"), ("", "none")])
async def test_a_claim_gets_a_volume_with_its_volume_attributes_class(requested: str | None, found: str | None) -> None:
    match = await find_match(claim(requested), [volume("gold", "gold"), volume("none", None)])
    assert (match.metadata.name if match else None) == found


async def test_a_volume_with_another_volume_attributes_class_does_not_match_the_claim_that_it_names() -> None:
    assert await find_match(claim("silver"), [volume("v", "gold", claim_ref=CLAIM)]) is None
    assert mismatch(volume("v", "gold"), claim("silver")) == "volumeAttributesClassName does not match"


def status_of(api: World) -> dict[str, Any]:
    found = msgspec.json.decode(api.objects["/api/v1/persistentvolumeclaims"]["default/c"])
    return found["status"]


async def test_binding_records_the_volumes_volume_attributes_class_as_the_claims_current_one() -> None:
    api = World()
    api.put(volume("v", "gold"))
    api.put(claim("gold"))
    async with working(api, FakeClock(), PersistentVolumeController):
        await settle(200)
    assert status_of(api)["phase"] == "Bound" and status_of(api)["currentVolumeAttributesClassName"] == "gold"


async def test_a_claim_that_was_bound_before_keeps_its_current_volume_attributes_class() -> None:
    api, lost = World(), claim("gold", phase="Lost", current="silver")
    lost.metadata.annotations[BIND_COMPLETED] = "yes"
    lost.spec.volume_name = "v"
    api.put(volume("v", "gold", claim_ref=CLAIM))
    api.put(lost)
    async with working(api, FakeClock(), PersistentVolumeController):
        await settle(200)
    assert status_of(api)["phase"] == "Bound" and status_of(api)["currentVolumeAttributesClassName"] == "silver"


async def test_a_claim_without_its_volume_has_no_current_volume_attributes_class() -> None:
    api, bound = World(), claim("gold", phase="Bound", current="gold")
    bound.metadata.annotations[BIND_COMPLETED] = "yes"
    bound.spec.volume_name = "v"
    api.put(bound)
    async with working(api, FakeClock(), PersistentVolumeController):
        await settle(200)
    assert status_of(api)["phase"] == "Lost" and "currentVolumeAttributesClassName" not in status_of(api)
