"""Builds the components that measure usage and reclaim resources: image garbage collection, eviction, housekeeping."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from agent.assembly.base import Base
from agent.assembly.pods import Pods
from agent.assembly.volumes import Volumes
from agent.cgroups.tree import Cgroups
from agent.eviction import Eviction, signals
from agent.eviction.image_filesystem import ImageFilesystem
from agent.eviction.thresholds import ThresholdTracker
from agent.images.garbage_collection import ImageGC
from agent.interfaces import PodView
from agent.pods.housekeeping import Housekeeping
from agent.pods.manager import PodManager
from agent.podspec.security import AnyContainer
from agent.tasks import Tasks
from agent.usage import cgroup
from agent.usage.collector import Collector
from agent.usage.model import Memory


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Components that measure usage and reclaim scarce resources and those without an owner."""

    collector: Collector
    image_gc: ImageGC
    eviction: Eviction
    housekeeping: Housekeeping

    def start(self, tasks: Tasks) -> None:
        tasks.loop("housekeeping", self.housekeeping.run)
        tasks.loop("image garbage collection", self.image_gc.run)
        tasks.loop("deletion of image names", self.image_gc.delete_names)
        tasks.loop("eviction", self.eviction.run)


def build_reclaim(base: Base, volumes: Volumes, pods: Pods, thresholds: ThresholdTracker) -> Reclaim:
    """Build the components without starting them."""
    config, manager = base.config, pods.manager
    collector = Collector(
        base.runtime.client,
        manager,
        base.clock,
        node_name=config.node_name,
        root_dir=config.root_dir,
        pods_dir=config.pods_dir,
        logs_dir=config.pod_logs_dir,
        persistent=volumes.manager.persistent_use,
        cgroups=base.pod_cgroups,
    )
    image_gc = _image_gc(base, pods)
    housekeeping = Housekeeping(
        lambda: manager.uids,
        volumes.manager,
        pods.resources,
        base.pod_cgroups,
        config.pod_logs_dir,
        config.container_logs_dir,
        clock=base.clock,
        metrics=base.metrics,
    )
    return Reclaim(collector, image_gc, _eviction(base, manager, thresholds, collector, image_gc), housekeeping)


def _image_gc(base: Base, pods: Pods) -> ImageGC:
    settings, manager = base.config.images, pods.manager
    return ImageGC(
        base.runtime.client,
        base.clock,
        seen=pods.image_access.prune,
        mounted=lambda: [id for view in manager.views() for c in view.containers for id in c.mounted_images],
        specified=lambda: [name for view in manager.views() for name in _specified_images(view)],
        high=settings.gc_high_percent,
        low=settings.gc_low_percent,
        minimum_age=settings.minimum_age,
        maximum_age=settings.maximum_age,
        metrics=base.metrics,
    )


def _eviction(
    base: Base, manager: PodManager, thresholds: ThresholdTracker, collector: Collector, image_gc: ImageGC
) -> Eviction:
    config, state = base.config, base.state
    images = ImageFilesystem(base.runtime.client, config.root_dir)
    pods_memory = partial(_pods_memory, base.pod_cgroups)
    return Eviction(
        manager,
        thresholds,
        signals.reader(config.root_dir, state.memory_capacity, pods_memory, lambda: images.folder),
        collector.snapshot,
        image_gc.free,
        state.request_report,
        images,
        remove_leftovers=manager.remove_leftovers_of_ended,
        clock=base.clock,
        most_grace=config.eviction.max_pod_grace,
        metrics=base.metrics,
    )


def _pods_memory(tree: Cgroups | None) -> Memory | None:
    return cgroup.memory_of(tree.fs.mount, tree.kubepods()) if tree is not None else None


def _specified_images(view: PodView) -> list[str]:
    """Return the image names of a pod's containers that have been created, and of its image volumes."""
    spec, created = view.pod.spec, {record.name for record in view.containers}
    containers: tuple[AnyContainer, ...] = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
    volumes = [volume.image.reference or "" for volume in spec.volumes if volume.image is not None]
    return [container.image or "" for container in containers if container.name in created] + volumes
