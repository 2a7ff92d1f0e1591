"""Finds pods that use more of the node's disk than their own limits allow (kubelet/eviction/eviction_manager.go). Pure."""

from __future__ import annotations

from agent.cgroups import qos
from agent.eviction.ranking import on_disk
from agent.lifecycle import End
from agent.usage.model import PodUse
from kube.api import core_v1
from kube.quantity import render, value

STORAGE = "ephemeral-storage"
VOLUME, POD, CONTAINER = "emptydirfs.limit", "ephemeralpodfs.limit", "ephemeralcontainerfs.limit"
"""The signals' names in metrics."""


def limited(pod: core_v1.Pod) -> bool:
    """Return whether a pod has any limit of its own."""
    return any(
        v.empty_dir is not None and v.empty_dir.size_limit and not v.empty_dir.medium for v in pod.spec.volumes
    ) or any(STORAGE in (c.resources.limits if c.resources else {}) for c in _containers(pod))


def excess(pod: core_v1.Pod, use: PodUse, *, separate_images: bool = False) -> tuple[End, str] | None:
    """Return the eviction of a pod that is over a limit, and the signal's name.

    Limits are checked in upstream's order: of a volume, of all its containers together, of one main container. If images,
    and so writable layers, have a filesystem of their own (`separate_images`), the last one is for logs only.
    """
    volumes = dict(use.volumes)
    for volume in pod.spec.volumes:
        source = volume.empty_dir
        if source is None or not source.size_limit or source.medium or volume.name not in volumes:
            continue
        limit = value(source.size_limit)
        if limit and volumes[volume.name].used > limit:
            return _end(f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{source.size_limit}". '), VOLUME
    limits = {
        c.name: value(c.resources.limits[STORAGE])
        for c in pod.spec.containers
        if c.resources is not None and STORAGE in c.resources.limits
    }
    logs = {one.name: one.logs_used for one in use.containers}
    layers = {one.name: one.rootfs_used for one in use.containers}
    elsewhere = use.files[0] + sum(volumes[v.name].used for v in pod.spec.volumes if v.name in volumes and on_disk(v))
    total = qos.sum_of_limits(pod, STORAGE)
    if total is not None and sum(logs.values()) + sum(layers.values()) + elsewhere > total:
        return _end(
            f"Pod ephemeral local storage usage exceeds the total limit of containers {_shown(pod, total)}. "
        ), POD
    for name, limit in limits.items():
        used = logs.get(name, 0) + (0 if separate_images else layers.get(name, 0))
        if limit and used > limit:
            text = next(c.resources.limits[STORAGE] for c in pod.spec.containers if c.name == name and c.resources)
            return _end(f'Container {name} exceeded its local ephemeral storage limit "{text}". '), CONTAINER
    return None


def _containers(pod: core_v1.Pod) -> list[core_v1.Container]:
    return [*pod.spec.containers, *pod.spec.init_containers]


def _shown(pod: core_v1.Pod, total: int) -> str:
    """Show the sum as its parts are written, where there is one part."""
    texts = [c.resources.limits[STORAGE] for c in _containers(pod) if c.resources and STORAGE in c.resources.limits]
    if len(texts) == 1 and value(texts[0]) == total:
        return str(texts[0])
    return render(total, "binary")


def _end(message: str) -> End:
    return End("Failed", "Evicted", message, disruption=message)
