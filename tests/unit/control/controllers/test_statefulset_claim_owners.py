"""Owners of the claims of a StatefulSet's pods."""

from __future__ import annotations

import pytest

from control.controllers.statefulset.claim_owners import wanted_owners
from kube.api import apps_v1, core_v1, meta_v1

from .makers import pod

POD = pod("db-1")


def desired(deleted: str, scaled: str) -> apps_v1.StatefulSet:
    policy = apps_v1.StatefulSetPersistentVolumeClaimRetentionPolicy(when_deleted=deleted, when_scaled=scaled)
    return apps_v1.StatefulSet(
        metadata=meta_v1.ObjectMeta(name="db", namespace="default", uid="uid-db"),
        spec=apps_v1.StatefulSetSpec(persistent_volume_claim_retention_policy=policy),
    )


def owner(kind: str, name: str, uid: str, controller: bool | None = None) -> meta_v1.OwnerReference:
    versions = {"StatefulSet": "apps/v1"}
    return meta_v1.OwnerReference(
        api_version=versions.get(kind, "v1"),
        kind=kind,
        name=name,
        uid=uid,
        controller=controller,
        block_owner_deletion=controller,
    )


THE_SET = owner("StatefulSet", "db", "uid-db", True)
THE_POD = owner("Pod", "db-1", POD.metadata.uid or "", True)
CONFIG = owner("ConfigMap", "other", "uid-other")
OTHER_CONTROLLER = owner("StatefulSet", "unknown", "uid-unknown", True)
EARLIER_SET, EARLIER_POD = owner("StatefulSet", "db", "uid-earlier", True), owner("Pod", "db-1", "uid-earlier", True)


def owners_of(known: list[meta_v1.OwnerReference], deleted: str, scaled: str, *, condemned: bool = False):
    claim = core_v1.PersistentVolumeClaim(metadata=meta_v1.ObjectMeta(name="data-db-1", namespace="default"))
    claim.metadata.owner_references = known
    return wanted_owners(desired(deleted, scaled), claim, POD, condemned=condemned)


@pytest.mark.parametrize(
    ("deleted", "scaled", "condemned", "owners"),
    [
        ("Retain", "Retain", True, []),
        ("Delete", "Retain", False, [THE_SET]),
        ("Retain", "Delete", False, []),
        ("Retain", "Delete", True, [THE_POD]),
        ("Delete", "Delete", True, [THE_POD]),
        ("Delete", "Delete", False, [THE_SET]),
    ],
)
def test_the_retention_policy_decides_who_controls_a_claim_and_keeps_its_other_owners(
    deleted: str, scaled: str, condemned: bool, owners: list[meta_v1.OwnerReference]
) -> None:
    assert owners_of([], deleted, scaled, condemned=condemned) == owners
    for known in ([CONFIG], [CONFIG, THE_SET], [CONFIG, THE_POD]):
        assert owners_of(known, deleted, scaled, condemned=condemned) == [CONFIG, *owners]


def test_a_claim_with_the_wanted_owners_is_not_written_for_their_order_or_their_other_fields() -> None:
    older = owner("StatefulSet", "db", "uid-db", True)
    older.block_owner_deletion = None
    for known in ([THE_SET, CONFIG], [older]):
        assert owners_of(known, "Delete", "Retain") is known


def test_an_owner_that_is_not_the_controller_becomes_it() -> None:
    assert owners_of([owner("StatefulSet", "db", "uid-db", False)], "Delete", "Retain") == [THE_SET]


def test_a_claim_that_another_controls_does_not_get_an_owner_and_loses_the_one_it_has() -> None:
    alone = [OTHER_CONTROLLER]
    assert owners_of(alone, "Delete", "Delete") is alone
    assert owners_of([OTHER_CONTROLLER, THE_SET], "Delete", "Delete") == [OTHER_CONTROLLER]


@pytest.mark.parametrize("known", [[EARLIER_SET], [EARLIER_POD], [EARLIER_SET, THE_SET]])
@pytest.mark.parametrize("deleted", ["Delete", "Retain"])
def test_a_claim_of_an_earlier_set_or_pod_of_the_same_name_is_left_alone(
    known: list[meta_v1.OwnerReference], deleted: str
) -> None:
    assert owners_of(known, deleted, deleted) is known
