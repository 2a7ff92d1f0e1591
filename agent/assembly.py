"""Builds the agent's parts in groups, each from those before it, and starts them in stages.

`build` starts nothing, but returns only when the runtime has answered, the node's cgroups exist and the runtime's pods are
listed. Where a part depends on one that is built later, both share something smaller that is built before them: NodeState (what
the node's status reports and who requests a report), a Notifier, RelistHealth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from agent.base import Base, build_base
from agent.config import AgentConfig
from agent.container_manager import claim_cleanup
from agent.eviction.thresholds import Threshold, ThresholdTracker
from agent.images.credentials.node_credentials import load_finished_pulls
from agent.managers import assembly as managers_assembly
from agent.managers.assembly import Resources
from agent.node.lease import NodeLease
from agent.node.registration import NodeRegistration
from agent.plugins.handler import CSI
from agent.pods import assembly as pods_assembly
from agent.pods.assembly import Pods, runtime_handler
from agent.pods.lifecycle_events import RelistHealth
from agent.pods.manager import PodManager
from agent.pods.references import ReferenceStore
from agent.podspec.userns import UserNamespaces
from agent.reclaim import Reclaim, build_reclaim
from agent.status.writer import StatusWriter
from agent.tasks import Tasks
from agent.threads import Threads
from agent.usage.operations import Operations
from agent.volumes import assembly as volumes_assembly
from agent.volumes.assembly import Volumes
from cri.client import Client as RuntimeClient
from kube.api import node_v1
from kube.client import Client
from kube.clock import Clock
from kube.informer import Informer


@dataclass(frozen=True, slots=True)
class Agent:
    """All groups."""

    base: Base
    resources: Resources
    volumes: Volumes
    node: NodeRegistration
    pods: Pods
    reclaim: Reclaim

    async def start_node(self, tasks: Tasks) -> None:
        """Register the node, then report its status and its drivers."""
        base, node, metrics = self.base, self.node, self.base.metrics
        await self.volumes.csi.restore()
        metrics.before_registration.set(base.clock.monotonic() - base.began)
        await node.register()
        metrics.registration.set(base.clock.monotonic() - base.began - metrics.before_registration.value())
        self.volumes.start(tasks)
        self.resources.start(tasks, base, self.pods.manager)
        tasks.loop("node status", node.report_forever)
        config = base.config
        lease = NodeLease(base.heartbeat, config.node_name, node.uid, config.lease_duration, clock=base.clock)
        tasks.loop("node lease", lease.run)

    def start_reclaim(self, tasks: Tasks) -> None:
        """Release what pods that are gone had; the first list of pods must be in."""
        managers, views = self.resources.managers, self.pods.manager.views
        tasks.loop("container manager", lambda: managers.run(self.base.runtime.client.runtime, views))
        tasks.loop("claims of pods that are gone", lambda: claim_cleanup.run(managers, self.base.clock, views))
        self.reclaim.start(tasks)

    async def ready(self) -> None:
        """Return when the node is Ready."""
        base, metrics = self.base, self.base.metrics
        await self.node.ready.wait()
        elapsed = base.clock.monotonic() - base.began
        metrics.node_startup.set(metrics.before_agent.value() + elapsed)
        until_registered = metrics.before_registration.value() + metrics.registration.value()
        metrics.after_registration.set(elapsed - until_registered)


async def build(
    config: AgentConfig,
    client: Client,
    heartbeat: Client,
    runtime: RuntimeClient,
    users: UserNamespaces,
    limits: tuple[Threshold, ...],
    address: str,
    operations: Operations,
    threads: Threads,
    clock: Clock,
) -> Agent:
    """Build all groups. The node's status and lease are sent by `heartbeat`.

    `address` is the node's own where neither configuration nor machine names one.
    """
    thresholds = ThresholdTracker(limits, config.eviction_pressure_transition)
    base = await build_base(config, client, heartbeat, runtime, thresholds, address, operations, threads, clock)
    manager = PodManager(StatusWriter(client, clock=clock, metrics=base.metrics))
    references = ReferenceStore(client, manager.references_changed, clock=clock)
    classes: Informer[node_v1.RuntimeClass] = Informer(client, node_v1.RuntimeClass, clock=clock)
    resources = managers_assembly.assemble(base)
    volumes = volumes_assembly.assemble(
        config,
        client,
        references,
        base.recorder,
        base.state,
        runtime_handler=partial(runtime_handler, classes),
        pods_changed=manager.references_changed,
        clock=clock,
    )
    relist = RelistHealth(clock)
    node = NodeRegistration(
        config,
        client,
        heartbeat,
        base.recorder,
        base.state,
        base.machine,
        base.runtime_status,
        devices=resources.managers.devices,
        volumes_in_use=volumes.attachments.in_use,
        relist_problem=relist.problem,
        clock=clock,
    )

    def devices_changed() -> None:
        node.devices_changed()
        for uid in resources.managers.device_owners:
            manager.outcome_changed(uid)

    resources.changed.subscribe(devices_changed)
    for kind, handler in (
        (CSI, volumes.drivers),
        (resources.device_plugins.kind, resources.device_plugins),
        (resources.claim_drivers.kind, resources.claim_drivers),
    ):
        resources.plugins.add_handler(kind, handler)
    pods = await pods_assembly.assemble(base, resources, volumes, node, manager, references, classes, relist, users)
    reclaim = build_reclaim(base, volumes, pods, thresholds)
    await load_finished_pulls(pods.image_access, runtime)
    await pods.workers.load()
    return Agent(base, resources, volumes, node, pods, reclaim)
