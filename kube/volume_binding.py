"""Which PersistentVolume fits a claim. Pure; the binder and the scheduler ask the same question.

A volume that names the claim is its own; else class, mode, access modes, size and selector must fit, and of those that do the
smallest is taken. Upstream: component-helpers/storage/volume (FindMatchingVolume).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kube import quantity
from kube.api import core_v1, storage_v1
from kube.node_affinity import term_matches
from kube.selectors import from_label_selector

BIND_COMPLETED, BOUND_BY_CONTROLLER = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"
PROVISIONER, SELECTED_NODE = "volume.kubernetes.io/storage-provisioner", "volume.kubernetes.io/selected-node"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
LOCAL_PATH_FOLDER = "wherry/local-path"
"""A Node's annotation: the absolute path of the folder where its agent keeps volumes of the local-path provisioner."""


def class_of(obj: core_v1.PersistentVolumeClaim | core_v1.PersistentVolume) -> str:
    """Return the name of the storage class; "" for none."""
    return obj.metadata.annotations.get(CLASS_ANNOTATION) or obj.spec.storage_class_name or ""


def claim_names(pod: core_v1.Pod) -> list[str]:
    """Return the names of the claims that a pod uses, also of those made for it."""
    names = [v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim is not None]
    return names + [f"{pod.metadata.name}-{v.name}" for v in pod.spec.volumes if v.ephemeral is not None]


def is_bound(claim: core_v1.PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def waits_for_pod(storage_class: storage_v1.StorageClass | None) -> bool:
    """True where claims of a class are bound only when a pod that uses them is placed."""
    return storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"


def meant_for(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    """True where a volume names the claim (with its UID, or with none yet)."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and (ref.namespace, ref.name) == (claim.metadata.namespace, claim.metadata.name)
        and (not ref.uid or ref.uid == claim.metadata.uid)
    )


def node_fits(volume: core_v1.PersistentVolume, node: core_v1.Node) -> bool:
    """True where a volume can be reached from a node."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    return required is None or any(term_matches(term, node) for term in required.node_selector_terms)


def other_mode(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> bool:
    """True where one is a device and the other a file system."""
    return (volume.spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem")


def mismatch(volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim) -> str:
    """Return why a volume will not do for a claim that names it; "" where it will. Upstream: checkVolumeSatisfyClaim."""
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.metadata.name}"'
    if _storage(volume.spec.capacity) < _storage(claim.spec.resources.requests if claim.spec.resources else {}):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if other_mode(volume, claim):
        return "incompatible volumeMode"
    if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
        return "incompatible accessMode"
    return ""


def find_match(
    claim: core_v1.PersistentVolumeClaim,
    volumes: Iterable[core_v1.PersistentVolume],
    *,
    node: core_v1.Node | None = None,
    taken: Callable[[str], bool] = lambda name: False,
) -> core_v1.PersistentVolume | None:
    """Return the volume that a claim should get; with a node, one that is reachable from there."""
    spec = claim.spec
    wanted = _storage(spec.resources.requests if spec.resources else {})
    selector = from_label_selector(spec.selector) if spec.selector is not None else None
    best: core_v1.PersistentVolume | None = None
    best_size = 0
    for volume in volumes:
        size = _storage(volume.spec.capacity)
        if other_mode(volume, claim):
            continue
        if volume.metadata.deletion_timestamp is not None or (node is not None and not node_fits(volume, node)):
            continue
        if meant_for(volume, claim):
            if size >= wanted:
                return volume
            continue
        if (
            volume.spec.claim_ref is not None
            or volume.status.phase not in ("Available", None)
            or taken(volume.metadata.name or "")
            or class_of(volume) != class_of(claim)
            or not set(spec.access_modes) <= set(volume.spec.access_modes)
            or size < wanted
            or (selector is not None and not selector.matches(volume.metadata.labels))
        ):
            continue
        if best is None or size < best_size:
            best, best_size = volume, size
    return best


def _storage(amounts: dict[str, str | int | float]) -> int:
    return quantity.value(amounts["storage"]) if "storage" in amounts else 0
