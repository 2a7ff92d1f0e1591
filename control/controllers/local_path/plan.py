"""Plans the volume of the local-path provisioner for a claim: a `local` PersistentVolume that only its node can use. Pure."""

from __future__ import annotations

from control.default_class import STORAGE_MARKS
from kube.api import core_v1, meta_v1, storage_v1
from kube.volume_binding import LOCAL_PATH_FOLDER, PROVISIONED_BY

PROVISIONER = "wherry/local-path"
CLASS = "local-path"
FINALIZER = "wherry/local-path"
"""Finalizer of a PersistentVolume until its folder is removed."""
_HOST = "kubernetes.io/hostname"
_MODES = ("ReadWriteOnce", "ReadWriteOncePod")


class CannotProvision(Exception):
    """The claim needs a feature that a folder does not have, or its node has no folder for volumes."""


def storage_class() -> storage_v1.StorageClass:
    """Return the StorageClass for claims without a class."""
    return storage_v1.StorageClass(
        metadata=meta_v1.ObjectMeta(name=CLASS, annotations={STORAGE_MARKS[0]: "true"}),
        provisioner=PROVISIONER,
        reclaim_policy="Delete",
        volume_binding_mode="WaitForFirstConsumer",
        allow_volume_expansion=True,
    )


def volume_name(claim: core_v1.PersistentVolumeClaim) -> str:
    return f"pvc-{claim.metadata.uid}"


def volume_for(
    claim: core_v1.PersistentVolumeClaim, storage: storage_v1.StorageClass, node: core_v1.Node
) -> core_v1.PersistentVolume:
    """Return the volume for a claim on a node. Raise CannotProvision."""
    if (claim.spec.volume_mode or "Filesystem") != "Filesystem":
        raise CannotProvision("a folder is no block device: volumeMode must be Filesystem")
    if wrong := [mode for mode in claim.spec.access_modes if mode not in _MODES]:
        raise CannotProvision(f"a volume on one node cannot be {wrong[0]}: {' and '.join(_MODES)} are possible")
    if claim.spec.selector is not None:
        raise CannotProvision("a new volume cannot be chosen by labels: claim.spec.selector is not supported")
    if claim.spec.volume_attributes_class_name:
        raise CannotProvision("a folder has no attributes: claim.spec.volumeAttributesClassName is not supported")
    folder = node.metadata.annotations.get(LOCAL_PATH_FOLDER)
    if not folder:
        raise CannotProvision(f"node {node.metadata.name} does not say where it keeps volumes ({LOCAL_PATH_FOLDER})")
    name = volume_name(claim)
    host = node.metadata.labels.get(_HOST) or node.metadata.name or ""
    term = core_v1.NodeSelectorTerm(
        match_expressions=[core_v1.NodeSelectorRequirement(key=_HOST, operator="In", values=[host])]
    )
    requests = claim.spec.resources.requests if claim.spec.resources else {}
    return core_v1.PersistentVolume(
        metadata=meta_v1.ObjectMeta(name=name, annotations={PROVISIONED_BY: PROVISIONER}, finalizers=[FINALIZER]),
        spec=core_v1.PersistentVolumeSpec(
            capacity={"storage": requests.get("storage", "0")},
            access_modes=list(claim.spec.access_modes),
            persistent_volume_reclaim_policy=storage.reclaim_policy or "Delete",
            storage_class_name=storage.metadata.name,
            volume_mode="Filesystem",
            local=core_v1.LocalVolumeSource(path=f"{folder}/{name}"),
            node_affinity=core_v1.VolumeNodeAffinity(required=core_v1.NodeSelector(node_selector_terms=[term])),
            claim_ref=core_v1.ObjectReference(
                api_version="v1",
                kind="PersistentVolumeClaim",
                namespace=claim.metadata.namespace,
                name=claim.metadata.name,
                uid=claim.metadata.uid,
            ),
        ),
    )


def host_of(volume: core_v1.PersistentVolume) -> str:
    """Return the value of the hostname label of a volume's node."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    for term in required.node_selector_terms if required else ():
        for requirement in term.match_expressions:
            if requirement.key == _HOST and requirement.values:
                return requirement.values[0]
    return ""


def serves(node: core_v1.Node, volume: core_v1.PersistentVolume) -> bool:
    """Return whether a volume's folder is on a node."""
    return host_of(volume) == (node.metadata.labels.get(_HOST) or node.metadata.name)


def is_ours(volume: core_v1.PersistentVolume) -> bool:
    return volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER


def is_done_with(volume: core_v1.PersistentVolume) -> bool:
    """Return whether a volume's claim was deleted and its data must be removed."""
    return volume.status.phase == "Released" and volume.spec.persistent_volume_reclaim_policy == "Delete"
