"""Claims and volumes whose binding was broken off or contradicts: the PV binder repairs or reports it as upstream does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.controllers.persistent_volumes.controller import PersistentVolumeController
from kube.api import core_v1, meta_v1
from kube.json_object import Object
from kube.volume_binding import BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONED_BY
from tests.support.clock import FakeClock, settle
from tests.support.product_world import World
from tests.support.working import working


def reference(uid: str | None = "u") -> core_v1.ObjectReference:
    return core_v1.ObjectReference(
        api_version="v1", kind="PersistentVolumeClaim", namespace="default", name="c", uid=uid
    )


def volume(
    name: str, claim_ref: core_v1.ObjectReference | None = None, policy: str = "Retain", **annotations: str
) -> core_v1.PersistentVolume:
    return core_v1.PersistentVolume(
        metadata=meta_v1.ObjectMeta(name=name, uid=name, annotations=annotations),
        spec=core_v1.PersistentVolumeSpec(
            capacity={"storage": "1Gi"},
            access_modes=["ReadWriteOnce"],
            claim_ref=claim_ref,
            persistent_volume_reclaim_policy=policy,
        ),
        status=core_v1.PersistentVolumeStatus(phase="Bound" if claim_ref else "Available"),
    )


def bound_claim(volume_name: str | None) -> core_v1.PersistentVolumeClaim:
    return core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(name="c", namespace="default", uid="u", annotations={BIND_COMPLETED: "yes"}),
        spec=core_v1.PersistentVolumeClaimSpec(
            storage_class_name="",
            access_modes=["ReadWriteOnce"],
            volume_name=volume_name,
            resources=core_v1.VolumeResourceRequirements(requests={"storage": "1Gi"}),
        ),
        status=core_v1.PersistentVolumeClaimStatus(
            phase="Bound", access_modes=["ReadWriteOnce"], capacity={"storage": "1Gi"}
        ),
    )


class Recording(World):
    """Keeps the reasons and messages of events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **options: Any) -> Any:
        if method == "POST" and path.endswith("/events"):
            event = msgspec.json.decode(options["body"])
            self.events.append((event["reason"], event["message"]))
        return await super().request(method, path, **options)


async def reconciled(*objects: msgspec.Struct) -> Recording:
    api = Recording()
    for obj in objects:
        api.put(obj)
    async with working(api, FakeClock(), PersistentVolumeController):
        await settle(300)
    return api


def read(api: World, plural: str, key: str) -> Object:
    return dict(msgspec.json.decode(api.objects[f"/api/v1/{plural}"][key]))


async def test_a_bound_claim_whose_volume_names_no_claim_is_bound_again() -> None:
    api = await reconciled(volume("v"), bound_claim("v"))
    assert read(api, "persistentvolumeclaims", "default/c")["status"]["phase"] == "Bound"
    found = read(api, "persistentvolumes", "v")
    assert found["spec"]["claimRef"]["uid"] == "u" and found["metadata"]["annotations"] == {BOUND_BY_CONTROLLER: "yes"}


@pytest.mark.parametrize("before", ["Pending", "Lost"])
@pytest.mark.parametrize(("capacity", "bound"), [("1Gi", True), ("1Mi", False)])
async def test_a_claim_that_says_it_is_bound_and_never_was_gets_only_a_volume_that_fits(
    capacity: str, bound: bool, before: str
) -> None:
    """Whoever creates a claim writes its annotations, and would get volumes past classes, sizes and quotas of classes."""
    claim, free = bound_claim("v"), volume("v")
    claim.status = core_v1.PersistentVolumeClaimStatus(phase=before)
    phase = "Bound" if bound else before
    free.spec.capacity = {"storage": capacity}
    api = await reconciled(free, claim)
    assert read(api, "persistentvolumeclaims", "default/c")["status"]["phase"] == phase
    assert ("claimRef" in read(api, "persistentvolumes", "v")["spec"]) is (phase == "Bound")
    assert [reason for reason, _ in api.events] == ([] if phase == "Bound" else ["VolumeMismatch"])


@pytest.mark.parametrize(
    ("volumes", "named", "reason", "message"),
    [
        ([], "v", "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
        (
            [volume("w")],
            None,
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        ),
        (
            [volume("v", reference("other"))],
            "v",
            "ClaimMisbound",
            "Two claims are bound to the same volume, this one is bound incorrectly",
        ),
    ],
)
async def test_a_bound_claim_without_its_volume_is_lost(
    volumes: list[core_v1.PersistentVolume], named: str | None, reason: str, message: str
) -> None:
    api = await reconciled(*volumes, bound_claim(named))
    claim = read(api, "persistentvolumeclaims", "default/c")
    assert claim["status"] == {"phase": "Lost"} and claim["spec"].get("volumeName") == named
    assert api.events == [(reason, message)]


async def test_volumes_of_a_claim_that_is_bound_to_another_one_are_unbound_or_released() -> None:
    api = await reconciled(
        volume("mine", reference()),
        volume("controllers", reference(), **{BOUND_BY_CONTROLLER: "yes"}),
        volume("users", reference()),
        volume("provisioned", reference(), "Delete", **{PROVISIONED_BY: "driver"}),
        bound_claim("mine"),
    )
    found = {name: read(api, "persistentvolumes", name) for name in ("mine", "controllers", "users", "provisioned")}
    phases = {name: volume["status"]["phase"] for name, volume in found.items()}
    assert phases == {"mine": "Bound", "controllers": "Available", "users": "Available", "provisioned": "Released"}
    assert "claimRef" not in found["controllers"]["spec"]
    assert BOUND_BY_CONTROLLER not in found["controllers"]["metadata"].get("annotations", {})
    assert found["users"]["spec"]["claimRef"]["name"] == "c" and "uid" not in found["users"]["spec"]["claimRef"]


async def test_a_bound_claim_gets_the_volumes_access_modes_and_keeps_its_own_capacity() -> None:
    grown = volume("v", reference())
    grown.spec.access_modes, grown.spec.capacity = ["ReadWriteOnce", "ReadOnlyMany"], {"storage": "2Gi"}
    api = await reconciled(grown, bound_claim("v"))
    status = read(api, "persistentvolumeclaims", "default/c")["status"]
    assert status["accessModes"] == ["ReadWriteOnce", "ReadOnlyMany"] and status["capacity"] == {"storage": "1Gi"}
