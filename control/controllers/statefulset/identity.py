"""The identity of a StatefulSet's pods: name, host name, labels and claims by ordinal, which outlive each single pod."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from control.controllers import history
from control.controllers.pod_control import pod_from_template
from kube.api import apps_v1, core_v1, meta_v1
from kube.object_names import key_of, name_of, namespace_of

NAME_LABEL, INDEX_LABEL = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_NAME = re.compile(r"(.*)-([0-9]+)")


def first_ordinal(sts: apps_v1.StatefulSet) -> int:
    return (sts.spec.ordinals.start if sts.spec.ordinals else 0) or 0


def ordinal_of(sts: apps_v1.StatefulSet, pod: core_v1.Pod) -> int | None:
    """Return the ordinal in a pod's name; None if the pod is not named after the set."""
    match = _NAME.fullmatch(name_of(pod))
    return int(match.group(2)) if match and match.group(1) == sts.metadata.name else None


def claim_name(sts: apps_v1.StatefulSet, template: core_v1.PersistentVolumeClaim, ordinal: int) -> str:
    return f"{template.metadata.name}-{name_of(sts)}-{ordinal}"


def claim_prefixes(sts: apps_v1.StatefulSet) -> list[str]:
    """Index function: how the keys of the claims of the set's pods begin, up to the ordinal."""
    prefixes = (claim_name(sts, template, 0)[:-1] for template in sts.spec.volume_claim_templates)
    return [f"{namespace_of(sts)}/{prefix}" for prefix in prefixes]


def claim_prefix(key: str) -> str:
    """Return the prefix of a claim's key that is that of a set, if the claim belongs to one; "" where it cannot."""
    prefix, ordinal = key[: key.rfind("-") + 1], key[key.rfind("-") + 1 :]
    return prefix if ordinal.isdigit() else ""


def leaving_prefixes(claim: core_v1.PersistentVolumeClaim) -> list[str]:
    """Index function: how the key of a claim begins that may keep a pod from being made."""
    owned = any(owner.kind == "Pod" for owner in claim.metadata.owner_references)
    return [claim_prefix(key_of(claim))] if owned or claim.metadata.deletion_timestamp is not None else []


def is_leaving(claim: core_v1.PersistentVolumeClaim, pod_name: str) -> bool:
    """True if a pod that is not made yet cannot have a claim: it is deleted, or goes with an earlier pod of that name.

    Upstream: PodClaimIsStale. What belongs to a pod that is gone is deleted by the garbage collector whatever the set's
    policy is now, so the policy is not requested.
    """
    owners = claim.metadata.owner_references
    return claim.metadata.deletion_timestamp is not None or any(
        owner.kind == "Pod" and owner.name == pod_name and owner.api_version == "v1" for owner in owners
    )


def claim_keys(sts: apps_v1.StatefulSet, ordinal: int) -> Iterator[tuple[core_v1.PersistentVolumeClaim, str]]:
    """Yield the claim templates, each with the key of the claim that the pod of an ordinal uses."""
    for template in sts.spec.volume_claim_templates:
        yield template, f"{namespace_of(sts)}/{claim_name(sts, template, ordinal)}"


def claim_of(
    sts: apps_v1.StatefulSet, template: core_v1.PersistentVolumeClaim, ordinal: int
) -> core_v1.PersistentVolumeClaim:
    """Return the claim of a template for the pod of an ordinal. It shares maps with the set, which are not to be changed."""
    labels = sts.spec.selector.match_labels if sts.spec.selector else {}
    if template.metadata.labels:
        labels = {**template.metadata.labels, **labels}
    return core_v1.PersistentVolumeClaim(
        metadata=meta_v1.ObjectMeta(
            name=claim_name(sts, template, ordinal),
            namespace=sts.metadata.namespace,
            labels=labels,
            annotations=template.metadata.annotations,
        ),
        spec=template.spec,
    )


def pod_of(sts: apps_v1.StatefulSet, ordinal: int, template: core_v1.PodTemplateSpec, revision: str) -> core_v1.Pod:
    """Make the pod of an ordinal from the template of the revision that has a name."""
    name = f"{name_of(sts)}-{ordinal}"
    pod = pod_from_template(template, sts, name=name)
    pod.metadata.labels[NAME_LABEL] = name
    pod.metadata.labels[INDEX_LABEL] = str(ordinal)
    pod.metadata.labels[history.HASH_LABEL] = revision
    claims = {
        template.metadata.name: core_v1.Volume(
            name=template.metadata.name or "",
            persistent_volume_claim=core_v1.PersistentVolumeClaimVolumeSource(
                claim_name=claim_name(sts, template, ordinal)
            ),
        )
        for template in sts.spec.volume_claim_templates
    }
    volumes = [volume for volume in pod.spec.volumes if volume.name not in claims] + list(claims.values())
    pod.spec = msgspec.structs.replace(
        pod.spec, hostname=name, subdomain=sts.spec.service_name or None, volumes=volumes
    )
    return pod


def revision_of(pod: core_v1.Pod) -> str:
    """Return the name of the revision that a pod was made from."""
    return pod.metadata.labels.get(history.HASH_LABEL, "")
