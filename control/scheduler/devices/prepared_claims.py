"""The claims of a pod, prepared for the search once in an attempt, and in slices if there are many.

A pod may name thousands of claims, each of which may have 32 requests of eight alternatives with 32 selectors each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from control.event_loop.pacing import TimeSlice
from control.scheduler.devices.requests import ClaimToAllocate, DeviceError, MissingClass, claim_to_allocate
from control.scheduler.podinfo import PodInfo
from control.scheduler.unfinished import Unfinished
from kube.api import resource_v1
from kube.object_names import name_of

AT_ONCE = 64
"""Selectors, tolerations and requests of a pod's claims up to which all are prepared in one step."""
KEY = "claims"
"""Key of the prepared claims in a pod's cycle_state."""
Classes = Mapping[str, resource_v1.DeviceClass]


def prepared(pod: PodInfo, claims: Sequence[resource_v1.ResourceClaim], classes: Classes) -> list[ClaimToAllocate]:
    """Return a pod's claims resolved; raises MissingClass and DeviceError, and Unfinished if this takes longer."""
    known, size = _known(pod), 0
    missing = [claim for claim in claims if not _is_current(known.get(_uid(claim)), claim, classes)]
    for claim in missing:
        size += _size(claim)
        if size > AT_ONCE and claim is not missing[0]:
            raise Unfinished(partial(_prepare, pod, missing, classes))
        known[_uid(claim)] = claim_to_allocate(claim, classes)
    return [known[_uid(claim)] for claim in claims]


async def _prepare(pod: PodInfo, claims: Sequence[resource_v1.ResourceClaim], classes: Classes) -> None:
    """Prepare claims in slices; an invalid one is reported when the pod is scheduled again."""
    known, time_slice = _known(pod), TimeSlice()
    for claim in claims:
        await time_slice.step()
        try:
            known[_uid(claim)] = claim_to_allocate(claim, classes)
        except (MissingClass, DeviceError):
            break


def _known(pod: PodInfo) -> dict[str, ClaimToAllocate]:
    found = pod.cycle_state.setdefault(KEY, {})
    assert isinstance(found, dict)
    return found


def _is_current(known: ClaimToAllocate | None, claim: resource_v1.ResourceClaim, classes: Classes) -> bool:
    """Return whether a claim was prepared as it is now, with the classes as they are now."""
    return (
        known is not None
        and known.claim is claim
        and all(
            classes.get(name_of(each.device_class)) is each.device_class
            for alternatives in known.requests
            for each in alternatives
        )
    )


def _uid(claim: resource_v1.ResourceClaim) -> str:
    return claim.metadata.uid or ""


def _size(claim: resource_v1.ResourceClaim) -> int:
    size = 1
    for request in claim.spec.devices.requests if claim.spec.devices else ():
        if request.exactly is not None:
            size += 1 + len(request.exactly.selectors) + len(request.exactly.tolerations)
        size += sum(1 + len(part.selectors) + len(part.tolerations) for part in request.first_available)
    return size
