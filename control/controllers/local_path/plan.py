"""Plans the volume of the local-path provisioner for a claim: a `local` PersistentVolume that only its node can use. Pure.

A kubelet may write its node's hostname label and the annotation with its folder. So the volume records the node's name, which
the control plane knows, and the folder is used on that node alone, where the agent compares it with its own. Node affinity of
volumes is by label upstream: its scheduler and kubelet compare no names (component-helpers/storage/volume, CheckNodeAffinity).
The hostname label is used if it is the node's name, the default; otherwise the volume is pinned by a field, which Wherry's
scheduler and agent support.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from control.interfaces.default_class import STORAGE_MARKS
from kube.api import core_v1, meta_v1, storage_v1
from kube.volume_binding import (
    LOCAL_PATH_FOLDER,
    LOCAL_PATH_NODE,
    LOCAL_PATH_PROVISIONER,
    PROVISIONED_BY,
    local_path_node,
)

PROVISIONER = LOCAL_PATH_PROVISIONER
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
    name, node_name = volume_name(claim), node.metadata.name or ""
    annotations = {PROVISIONED_BY: PROVISIONER, LOCAL_PATH_NODE: node_name}
    requests = claim.spec.resources.requests if claim.spec.resources else {}
    return core_v1.PersistentVolume(
        metadata=meta_v1.ObjectMeta(name=name, annotations=annotations, finalizers=[FINALIZER]),
        spec=core_v1.PersistentVolumeSpec(
            capacity={"storage": requests.get("storage", "0")},
            access_modes=list(claim.spec.access_modes),
            persistent_volume_reclaim_policy=storage.reclaim_policy or "Delete",
            storage_class_name=storage.metadata.name,
            volume_mode="Filesystem",
            local=core_v1.LocalVolumeSource(path=f"{_folder(node)}/{name}"),
            node_affinity=core_v1.VolumeNodeAffinity(required=core_v1.NodeSelector(node_selector_terms=[_term(node)])),
            claim_ref=core_v1.ObjectReference(
                api_version="v1",
                kind="PersistentVolumeClaim",
                namespace=claim.metadata.namespace,
                name=claim.metadata.name,
                uid=claim.metadata.uid,
            ),
        ),
    )


def _folder(node: core_v1.Node) -> str:
    """Return the folder of a node's volumes. Raise CannotProvision."""
    name, folder = node.metadata.name, node.metadata.annotations.get(LOCAL_PATH_FOLDER)
    if not folder:
        raise CannotProvision(f"node {name} does not say where it keeps volumes ({LOCAL_PATH_FOLDER})")
    if not folder.startswith("/") or not folder.isprintable() or posixpath.normpath(folder) != folder:
        raise CannotProvision(f"the annotation {LOCAL_PATH_FOLDER} of node {name} is not an absolute path: {folder!r}")
    return folder


def _term(node: core_v1.Node) -> core_v1.NodeSelectorTerm:
    """Return the term that only a node matches."""
    name = node.metadata.name or ""
    if node.metadata.labels.get(_HOST) == name:
        return core_v1.NodeSelectorTerm(match_expressions=[_is(_HOST, name)])
    return core_v1.NodeSelectorTerm(match_fields=[_is("metadata.name", name)])


def _is(key: str, value: str) -> core_v1.NodeSelectorRequirement:
    return core_v1.NodeSelectorRequirement(key=key, operator="In", values=[value])


def nodes_of(volume: core_v1.PersistentVolume, nodes: Iterable[core_v1.Node]) -> list[core_v1.Node]:
    """Return the nodes that may have a volume's folder: the one that the volume records.

    Volumes of older versions have only the value of their node's hostname label, which a node may share that should not. The
    node that has it as name and label is theirs; otherwise it is one of those that have either, and a node without the folder
    removes nothing.
    """
    if recorded := local_path_node(volume):
        return [node for node in nodes if node.metadata.name == recorded]
    host = _host_of(volume)
    found = [node for node in nodes if host and host in (node.metadata.name, node.metadata.labels.get(_HOST))]
    both = [node for node in found if node.metadata.name == node.metadata.labels.get(_HOST, host)]
    return both or found


def _host_of(volume: core_v1.PersistentVolume) -> str:
    """Return the value of the hostname label of a volume's node."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    for term in required.node_selector_terms if required else ():
        for requirement in term.match_expressions:
            if requirement.key == _HOST and requirement.values:
                return requirement.values[0]
    return ""


def is_ours(volume: core_v1.PersistentVolume) -> bool:
    return volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER


def is_done_with(volume: core_v1.PersistentVolume) -> bool:
    """Return whether a volume's claim was deleted and its data must be removed."""
    return volume.status.phase == "Released" and volume.spec.persistent_volume_reclaim_policy == "Delete"
