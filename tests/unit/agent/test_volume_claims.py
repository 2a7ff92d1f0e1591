"""Claims that a pod's volume may be set up from."""

from __future__ import annotations

import msgspec
import pytest

from agent.volumes.claims import GROUP_ANNOTATION, PROTECTION, BoundClaim, ClaimReader
from agent.volumes.payload import VolumeError
from kube.api import core_v1
from tests.support.lagging_api import LaggingAPI

POD = msgspec.convert({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}}, core_v1.Pod)
VOLUME = msgspec.convert({"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, core_v1.Volume)


def reader(*finalizers: str) -> ClaimReader:
    """Return a reader of a bound claim that is being deleted and has finalizers."""
    api = LaggingAPI()
    metadata = {"name": "data", "namespace": "n", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    claim = {
        "metadata": {**metadata, "finalizers": finalizers},
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    }
    reference = {"namespace": "n", "name": "data", "uid": "u"}
    api.put(msgspec.convert(claim, core_v1.PersistentVolumeClaim))
    api.put(msgspec.convert({"metadata": {"name": "pv"}, "spec": {"claimRef": reference}}, core_v1.PersistentVolume))
    return ClaimReader(api.client())


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("777", 777),
        ("0", 0),
        ("+007", 7),
        ("2147483647", 2147483647),
        ("2147483648", None),  # the kernel's next numbers could be another group's, or root's
        ("4294967296", None),
        ("-1", None),
        ("", None),
        ("staff", None),
        ("7 ", None),
        ("1_0", None),
        ("٧", None),
        ("9" * 10_000, None),
    ],
)
def test_the_group_of_a_volume_is_the_decimal_number_in_its_annotation(text: str, group: int | None) -> None:
    volume = core_v1.PersistentVolume()
    volume.metadata.annotations = {GROUP_ANNOTATION: text}
    assert BoundClaim(core_v1.PersistentVolumeClaim(), volume).group == group
    assert BoundClaim(core_v1.PersistentVolumeClaim(), core_v1.PersistentVolume()).group is None


async def test_a_claim_that_is_deleted_and_lost_its_protection_is_refused() -> None:
    with pytest.raises(VolumeError, match="error processing PVC n/data: PVC is being deleted"):
        await reader("example.com/backup").read(POD, VOLUME)


async def test_a_claim_that_is_deleted_and_still_protected_serves_the_pods_that_have_it() -> None:
    bound = await reader(PROTECTION).read(POD, VOLUME)
    assert (bound.claim.metadata.name, bound.persistent.metadata.name) == ("data", "pv")


@pytest.mark.parametrize(
    ("owners", "refused"),
    [
        ([], True),
        ([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid"}], True),
        ([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "other", "controller": True}], True),
        ([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid", "controller": True}], False),
    ],
)
async def test_an_ephemeral_volume_is_the_claim_that_was_made_for_the_pod(owners: list[object], refused: bool) -> None:
    """A pod that names its node itself is not looked at by the scheduler, which checks it too."""
    api = LaggingAPI()
    metadata = {"name": "p-data", "namespace": "n", "uid": "u", "ownerReferences": owners}
    claim = {"metadata": metadata, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
    reference = {"namespace": "n", "name": "p-data", "uid": "u"}
    api.put(msgspec.convert(claim, core_v1.PersistentVolumeClaim))
    api.put(msgspec.convert({"metadata": {"name": "pv"}, "spec": {"claimRef": reference}}, core_v1.PersistentVolume))
    pod = msgspec.structs.replace(POD, metadata=msgspec.structs.replace(POD.metadata, uid="p-uid"))
    volume = msgspec.convert({"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}, core_v1.Volume)
    if refused:
        with pytest.raises(VolumeError, match="PVC n/p-data was not created for pod n/p"):
            await ClaimReader(api.client()).read(pod, volume)
    else:
        assert (await ClaimReader(api.client()).read(pod, volume)).claim.metadata.name == "p-data"
