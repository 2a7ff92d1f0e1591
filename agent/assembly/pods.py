"""Builds the pod manager of this node with its workers and watches, and starts it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from agent.assembly.base import Base
from agent.assembly.images import build_images
from agent.assembly.resources import Resources
from agent.assembly.volumes import Volumes
from agent.images.image_access import ImageAccess
from agent.metrics.pod_startup import PodStartupTracker
from agent.node.log_rotation import LogRotation
from agent.node.registration import NodeRegistration
from agent.pods.clock_steps import ClockSteps
from agent.pods.dependencies import PodDependencies
from agent.pods.hooks import Hooks
from agent.pods.lifecycle_events import RelistHealth
from agent.pods.manager import PodManager
from agent.pods.mirror_pods import MirrorPods
from agent.pods.references import ReferenceStore
from agent.pods.resource_state import PodResourceStates
from agent.pods.static import StaticPods
from agent.pods.workers import PodWorkers
from agent.podspec.userns import UserNamespaces
from agent.probes import PodProber
from agent.tasks import Tasks
from kube.api import core_v1, node_v1
from kube.informer import Informer


@dataclass(frozen=True, slots=True)
class Pods:
    """Components that run this node's pods."""

    manager: PodManager
    workers: PodWorkers
    prober: PodProber
    services: Informer[core_v1.Service]
    runtime_classes: Informer[node_v1.RuntimeClass]
    mirrors: MirrorPods
    image_access: ImageAccess
    resources: PodResourceStates

    async def start(self, tasks: Tasks, base: Base) -> None:
        """Run the workers, and the static pods, for which no API is needed."""
        config, clock = base.config, base.clock
        tasks.loop("probes", self.prober.run)
        tasks.loop("follow Services", self.services.run)
        tasks.loop("follow RuntimeClasses", self.runtime_classes.run)
        tasks.loop("pods", self.workers.run)
        tasks.loop("clock steps", ClockSteps(clock, self.workers.clock_stepped).run)
        rotation = LogRotation(
            base.runtime.client.runtime,
            self.manager,
            clock,
            base.runtime.attached,
            max_bytes=config.logs.max_bytes,
            max_files=config.logs.max_files,
            period=config.logs.check_period,
        )
        tasks.loop("log rotation", rotation.run)
        if config.static_pod_path is not None:
            changed = self.workers.static_pods_changed
            static = StaticPods(config.static_pod_path, config.node_name, changed, clock=clock)
            await static.load()
            tasks.loop("static pods", static.run)

    async def start_api_pods(self, tasks: Tasks, base: Base) -> None:
        """Follow the API's pods; returns when the first list is in."""
        selector = f"spec.nodeName={base.config.node_name}"
        watch: Informer[core_v1.Pod] = Informer(base.client, core_v1.Pod, field_selector=selector, clock=base.clock)
        watch.subscribe(self.workers.pod_changed)
        tasks.loop("follow Pods", watch.run)
        await watch.wait_synced()
        self.workers.api_synced()
        tasks.loop("mirror pods", self.mirrors.run)


async def build_pods(
    base: Base,
    resources: Resources,
    volumes: Volumes,
    node: NodeRegistration,
    manager: PodManager,
    references: ReferenceStore,
    classes: Informer[node_v1.RuntimeClass],
    relist: RelistHealth,
    users: UserNamespaces,
) -> Pods:
    """Build the parts; nothing runs yet."""
    config, client, clock = base.config, base.client, base.clock
    startup = PodStartupTracker(base.metrics)
    images, access = await build_images(base, startup)
    prober = PodProber(base.runtime.client.runtime, base.recorder, manager.outcome_changed, clock)
    services: Informer[core_v1.Service] = Informer(client, core_v1.Service, clock=clock)
    deps = PodDependencies(
        config=config,
        clock=clock,
        node=base.state,
        runtime=base.runtime,
        images=images,
        volumes=volumes.manager,
        references=references,
        resources=await asyncio.to_thread(PodResourceStates, config.root_dir),
        services=services,
        recorder=base.recorder,
        writer=manager.writer,
        prober=prober,
        hooks=Hooks(base.runtime.client, clock=clock),
        cgroups=base.cgroups,
        managers=resources.managers,
        user_namespaces=users,
        metrics=base.metrics,
        startup=startup,
        runtime_handler=partial(runtime_handler, classes),
        tracer=base.tracer,
    )
    mirrors = MirrorPods(client, config.node_name, clock=clock)
    workers = PodWorkers(deps, manager, mirrors, node.refresh, relist)
    return Pods(manager, workers, prober, services, classes, mirrors, access, deps.resources)


def runtime_handler(classes: Informer[node_v1.RuntimeClass], name: str) -> str:
    """Return the runtime handler of a RuntimeClass. Raise KeyError if it does not exist."""
    found = classes.get(name)
    if found is None:
        raise KeyError(name)
    return found.handler
