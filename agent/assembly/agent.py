"""Builds the whole agent, group by group, and starts its groups in stages.

`build` starts nothing, but returns only when the runtime has answered, the node's cgroups exist and the runtime's pods are
listed. Where a part depends on one that is built later, both share something smaller that is built before them: NodeState (what
the node's status reports and who requests a report), a Notifier, RelistHealth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from agent.assembly.base import Base, build_base
from agent.assembly.images import load_finished_pulls
from agent.assembly.pods import Pods, build_pods, runtime_handler
from agent.assembly.reclaim import Reclaim, build_reclaim
from agent.assembly.resources import Resources, build_resources
from agent.assembly.volumes import Volumes, build_volumes
from agent.config import AgentConfig
from agent.container_manager import claim_cleanup
from agent.eviction.thresholds import Threshold, ThresholdTracker
from agent.node.lease import NodeLease
from agent.node.registration import NodeRegistration
from agent.plugins.handler import CSI
from agent.pods.lifecycle_events import RelistHealth
from agent.pods.manager import PodManager
from agent.pods.references import ReferenceStore
from agent.podspec.userns import UserNamespaces
from agent.status.writer import StatusWriter
from agent.tasks import Tasks
from agent.threads import Threads
from agent.usage.operations import Operations
from cri.client import Client as RuntimeClient
from kube.api import node_v1
from kube.client import Client
from kube.clock import Clock
from kube.informer import Informer
from kube.tracing.tracer import Tracer


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

    async def usable(self) -> None:
        """Return when the node is Ready, or lacks only a pod network."""
        await self.node.usable.wait()

    async def measure_startup(self) -> None:
        """Set the metrics of the start when the node is Ready."""
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
    tracer: Tracer | None = None,
) -> Agent:
    """Build all groups. The node's status and lease are sent by `heartbeat`.

    `address` is the node's own where neither configuration nor machine names one.
    """
    thresholds = ThresholdTracker(limits, config.eviction.pressure_transition)
    base = await build_base(config, client, heartbeat, runtime, thresholds, address, operations, threads, clock, tracer)
    manager = PodManager(StatusWriter(client, clock=clock, metrics=base.metrics))
    references = ReferenceStore(client, manager.references_changed, clock=clock)
    classes: Informer[node_v1.RuntimeClass] = Informer(client, node_v1.RuntimeClass, clock=clock)
    relist = RelistHealth(clock)
    resources = build_resources(base)
    volumes = build_volumes(base, references, manager.references_changed, partial(runtime_handler, classes))
    node = _node(base, resources, volumes, relist)
    _connect_plugins(resources, volumes, node, manager)
    pods = await build_pods(base, resources, volumes, node, manager, references, classes, relist, users)
    reclaim = build_reclaim(base, volumes, pods, thresholds)
    await load_finished_pulls(pods.image_access, runtime)
    await pods.workers.load()
    return Agent(base, resources, volumes, node, pods, reclaim)


def _node(base: Base, resources: Resources, volumes: Volumes, relist: RelistHealth) -> NodeRegistration:
    return NodeRegistration(
        base.config,
        base.client,
        base.heartbeat,
        base.recorder,
        base.state,
        base.machine,
        base.runtime_status,
        devices=resources.managers.devices,
        volumes_in_use=volumes.attachments.in_use,
        relist_problem=relist.problem,
        clock=base.clock,
    )


def _connect_plugins(resources: Resources, volumes: Volumes, node: NodeRegistration, manager: PodManager) -> None:
    """Register the handlers of plugins, and report changes of devices to the node and to the pods that have some."""

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
