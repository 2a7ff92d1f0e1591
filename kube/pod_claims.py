"""ResourceClaims of a pod, and the pod of a claim (upstream: dynamic-resource-allocation/resourceclaim)."""

from __future__ import annotations

from collections.abc import Mapping

from kube.api import core_v1, resource_v1

MOST_CONSUMERS = 256
"""Consumers that one claim can be reserved for (ResourceClaimReservedForMaxSize)."""


class ClaimError(Exception):
    """A pod cannot use its claim (yet); the message is the reason."""


def made_claims(pod: core_v1.Pod) -> dict[str, str | None]:
    """Return by entry of `spec.resourceClaims` the claims that were made from templates; None where none is needed."""
    return {status.name: status.resource_claim_name for status in reversed(pod.status.resource_claim_statuses)}


def claim_name(
    pod: core_v1.Pod, wanted: core_v1.PodResourceClaim, made: Mapping[str, str | None]
) -> tuple[str | None, bool]:
    """Return the name of the claim behind an entry of `spec.resourceClaims`, and whether the pod must own it.

    None: none is needed. `made` are the pod's `made_claims`. Raises ClaimError if the claim has not been made from its
    template yet.
    """
    if wanted.resource_claim_name is not None:
        return wanted.resource_claim_name, False
    entry = f"pod {pod.metadata.namespace}/{pod.metadata.name}, spec.resourceClaim {wanted.name}"
    if wanted.resource_claim_template_name is None:
        raise ClaimError(f"{entry}: none of the supported fields are set")
    if wanted.name in made:
        return made[wanted.name], True
    raise ClaimError(f"{entry}: ResourceClaim not created yet")


def is_owner(pod: core_v1.Pod, claim: resource_v1.ResourceClaim) -> bool:
    """True if a claim was made for the pod."""
    return claim.metadata.namespace == pod.metadata.namespace and any(
        ref.controller and ref.uid == pod.metadata.uid for ref in claim.metadata.owner_references
    )


def check_owner(pod: core_v1.Pod, claim: resource_v1.ResourceClaim) -> None:
    """Raise ClaimError if a claim was not made for the pod."""
    if is_owner(pod, claim):
        return
    raise ClaimError(
        f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name} was not created for "
        f"pod {pod.metadata.namespace}/{pod.metadata.name} (pod is not owner)"
    )


def is_reserved_for(claim: resource_v1.ResourceClaim, pod: core_v1.Pod) -> bool:
    return any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)


def can_be_reserved(claim: resource_v1.ResourceClaim) -> bool:
    """True if one more consumer can have the claim."""
    return len(claim.status.reserved_for) < MOST_CONSUMERS
