"""Claims that a pod waits for: volumes (PersistentVolumeClaim) and devices (ResourceClaim)."""

from __future__ import annotations

from collections.abc import Sequence

from kube import pod_claims
from kube.api import core_v1, resource_v1
from kube.object_names import name_of, namespace_of
from wherry.why import commands
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference


async def claims(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    """Return causes for claims that a pod names and that do not exist or cannot be used."""
    namespace = namespace_of(pod)
    for volume in pod.spec.volumes:
        name = volume.persistent_volume_claim.claim_name if volume.persistent_volume_claim is not None else ""
        if volume.ephemeral is not None:
            name = f"{name_of(pod)}-{volume.name}"
        if not name:
            continue
        claim = await diagnosis.reader.get(core_v1.PersistentVolumeClaim, name, namespace)
        if claim is not None:
            if found := await diagnosis.causes(claim):
                return found
        elif diagnosis.reader.missing(core_v1.PersistentVolumeClaim, name, namespace):
            text = f"its volume {volume.name} uses the PersistentVolumeClaim {name}, which does not exist"
            return [Cause(text, commands.listing("persistentvolumeclaims", namespace), reference(pod))]
    return await _devices(diagnosis, pod)


async def _devices(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    namespace, made, reader = namespace_of(pod), pod_claims.made_claims(pod), diagnosis.reader
    for wanted in pod.spec.resource_claims:
        template = wanted.resource_claim_template_name
        what = f"its resource claim {wanted.name}"
        if template and await reader.absent(resource_v1.ResourceClaimTemplate, template, namespace):
            text = f"{what} uses the ResourceClaimTemplate {template}, which does not exist"
            return [Cause(text, commands.listing("resourceclaimtemplates", namespace), reference(pod))]
        try:
            name, _ = pod_claims.claim_name(pod, wanted, made)
        except pod_claims.ClaimError as error:
            return [Cause(str(error), about=reference(pod), waits=True)]
        if name and await reader.absent(resource_v1.ResourceClaim, name, namespace):
            text = f"{what} is the ResourceClaim {name}, which does not exist"
            return [Cause(text, commands.listing("resourceclaims", namespace), reference(pod))]
    return ()
