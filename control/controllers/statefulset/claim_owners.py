"""The owners of the claims of a StatefulSet's pods, as the set's retention policy wants them.

The set and the pod are owners of a claim only as its controller, and only while nobody else is. Upstream:
isClaimOwnerUpToDate and updateClaimOwnerRefForSetAndPod.
"""

from __future__ import annotations

from control.controllers.ownership import controller_reference
from kube import resources
from kube.api import apps_v1, core_v1, meta_v1
from kube.object_names import metadata_of, name_of

Owners = list[meta_v1.OwnerReference]
_Owner = apps_v1.StatefulSet | core_v1.Pod


def wanted_owners(
    sts: apps_v1.StatefulSet, claim: core_v1.PersistentVolumeClaim, pod: core_v1.Pod | None, *, condemned: bool
) -> Owners:
    """Return a claim's owners with the one that the policy wants among them: the set, the pod that is going, or neither.

    The claim's own list is returned where nothing is to be written.
    """
    known = claim.metadata.owner_references
    owners: list[_Owner] = [sts] if pod is None else [sts, pod]
    uids = {_place(each): metadata_of(each).uid for each in owners}
    ours: Owners = []
    others: Owners = []
    for ref in known:
        (ours if (ref.api_version, ref.kind, ref.name) in uids else others).append(ref)
    if any(ref.uid != uids[ref.api_version, ref.kind, ref.name] for ref in ours):
        return known  # an earlier set or pod of that name owns the claim, and the garbage collector decides
    owner = _owner(sts, pod, condemned=condemned)
    taken = any(ref.controller for ref in others)
    wanted = [] if owner is None or taken else [controller_reference(owner)]
    if _identities(wanted) == _identities(ours):
        return known
    return [*others, *wanted]


def _owner(sts: apps_v1.StatefulSet, pod: core_v1.Pod | None, *, condemned: bool) -> _Owner | None:
    policy = sts.spec.persistent_volume_claim_retention_policy
    if policy is None:
        return None
    if policy.when_scaled == "Delete" and condemned and pod is not None:
        return pod
    return sts if policy.when_deleted == "Delete" else None


def _place(owner: _Owner) -> tuple[str, str, str]:
    """Return by what a reference names an owner, whatever its UID: API version, kind and name."""
    resource = resources.of(type(owner))
    return resource.api_version, resource.kind, name_of(owner)


def _identities(owners: Owners) -> list[tuple[str | None, bool]]:
    return [(ref.uid, bool(ref.controller)) for ref in owners]
