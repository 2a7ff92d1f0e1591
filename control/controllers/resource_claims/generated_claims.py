"""The claim that a pod gets from a template: named after both, owned by the pod. Upstream: pkg/controller/resourceclaim."""

from __future__ import annotations

from control.controllers.ownership import controller_reference
from control.controllers.pods import is_terminal
from kube.api import core_v1, meta_v1, resource_v1
from kube.object_names import name_of, namespace_of

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
_LONGEST = 57
"""Characters of a generated name without the hyphen and the five random ones that the server adds."""


def claim_from(
    pod: core_v1.Pod, entry: core_v1.PodResourceClaim, template: resource_v1.ResourceClaimTemplate
) -> resource_v1.ResourceClaim:
    """Return the claim for one entry of a pod's `spec.resourceClaims`."""
    given = template.spec.metadata
    metadata = meta_v1.ObjectMeta(
        namespace=namespace_of(pod),
        generate_name=base_name(name_of(pod), entry.name),
        labels=given.labels,
        annotations={**given.annotations, POD_CLAIM: entry.name},
        owner_references=[controller_reference(pod)],
    )
    return resource_v1.ResourceClaim(metadata=metadata, spec=template.spec.spec)


def base_name(pod: str, entry: str) -> str:
    """Return what a claim's name begins with; names that are too long together are cut in proportion."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= _LONGEST:
        return whole
    return f"{pod[: len(pod) * _LONGEST // len(whole)]}-{entry[: len(entry) * _LONGEST // len(whole)]}"


def is_done(pod: core_v1.Pod) -> bool:
    """True if none of the pod's containers runs or ever will."""
    return is_terminal(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)
