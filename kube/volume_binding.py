"""Compares a PersistentVolume and a claim, for the PV binder and the scheduler. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kube import quantity
from kube.api import core_v1, storage_v1
from kube.node_affinity import term_matches

BIND_COMPLETED, BOUND_BY_CONTROLLER = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"
PROVISIONER, SELECTED_NODE = "volume.kubernetes.io/storage-provisioner", "volume.kubernetes.io/selected-node"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
LOCAL_PATH_PROVISIONER = "wherry/local-path"
LOCAL_PATH_FOLDER = "wherry/local-path"
"""A Node's annotation: the absolute path of the folder where its agent keeps volumes of the local-path provisioner."""

LOCAL_PATH_NODE = "wherry/local-path-node"
"""Annotation of such a volume: the name of its node. Labels are no identity, a kubelet may change those of its own node."""


def class_of(obj: core_v1.PersistentVolumeClaim | core_v1.PersistentVolume) -> str:
    """Return the name of the storage class; "" for none."""
    return named_class(obj.metadata.annotations, obj.spec.storage_class_name)


def named_class(annotations: Mapping[str, str], field: str | None) -> str:
    """Return the storage class of a claim or a volume: an annotation goes first, also an empty one.

    Upstream: GetPersistentVolumeClaimClass and GetPersistentVolumeClass in component-helpers/storage/volume.
    """
    return annotations[CLASS_ANNOTATION] if CLASS_ANNOTATION in annotations else field or ""


def claim_reference(claim: core_v1.PersistentVolumeClaim) -> core_v1.ObjectReference:
    """Return a volume's reference to the claim that it is bound to."""
    return core_v1.ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        resource_version=claim.metadata.resource_version,
    )


def claim_names(pod: core_v1.Pod) -> list[str]:
    """Return the names of the claims that a pod uses, including those of ephemeral volumes."""
    return named_claims(pod) + [f"{pod.metadata.name}-{v.name}" for v in pod.spec.volumes if v.ephemeral is not None]


def named_claims(pod: core_v1.Pod) -> list[str]:
    """Return the names of the claims that a pod's volumes name."""
    return [v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim is not None]


def is_bound(claim: core_v1.PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def waits_for_pod(storage_class: storage_v1.StorageClass | None) -> bool:
    """Return whether claims of a class wait for their first pod (WaitForFirstConsumer)."""
    return storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"


def meant_for(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    """Return whether a volume's claimRef names the claim, with its UID or without one."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and (ref.namespace, ref.name) == (claim.metadata.namespace, claim.metadata.name)
        and (not ref.uid or ref.uid == claim.metadata.uid)
    )


def node_fits(volume: core_v1.PersistentVolume, node: core_v1.Node) -> bool:
    """Return whether a volume's node affinity matches a node; a local-path volume fits only the node that it records."""
    recorded = local_path_node(volume)
    if recorded and recorded != node.metadata.name:
        return False
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    return required is None or any(term_matches(term, node) for term in required.node_selector_terms)


def local_path_node(volume: core_v1.PersistentVolume) -> str:
    """Return the name of the node that a local-path volume records; "" for other volumes and those of older versions."""
    annotations = volume.metadata.annotations
    return annotations.get(LOCAL_PATH_NODE, "") if annotations.get(PROVISIONED_BY) == LOCAL_PATH_PROVISIONER else ""


def other_mode(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    """Return whether the volume modes differ."""
    return (volume.spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem")


def other_attributes_class(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    """Return whether the VolumeAttributesClasses differ; "" is none."""
    return (volume.spec.volume_attributes_class_name or "") != (claim.spec.volume_attributes_class_name or "")


def mismatch(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> str:
    """Return why a volume does not satisfy a claim that names it; "" if it does. Upstream: checkVolumeSatisfyClaim."""
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.metadata.name}"'
    if size_of(volume) < wanted_size(claim):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if other_attributes_class(volume, claim):
        return "volumeAttributesClassName does not match"
    if other_mode(volume, claim):
        return "incompatible volumeMode"
    if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
        return "incompatible accessMode"
    return ""


def size_of(volume: core_v1.PersistentVolume) -> int:
    """Return a volume's capacity in bytes."""
    return _storage(volume.spec.capacity)


def wanted_size(claim: core_v1.PersistentVolumeClaim) -> int:
    """Return a claim's request in bytes."""
    return _storage(claim.spec.resources.requests) if claim.spec.resources else 0


def _storage(amounts: dict[str, str | int | float]) -> int:
    return quantity.value(amounts["storage"]) if "storage" in amounts else 0
