"""Builds the agent's parts in groups, each from those before it, and starts them in stages.

`build` starts nothing, but returns only when the runtime has answered, the node's cgroups exist and the runtime's pods are
listed. Where a part depends on one that is built later, both share something smaller that is built before them: NodeState (what
the node's status reports and who requests a report), a Notifier, RelistHealth.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from functools import partial

from agent.cgroups.tree import Cgroups
from agent.claims import assembly as claims_assembly
from agent.claims.drivers import Drivers
from agent.config import AgentConfig
from agent.devices.registration import Registration
from agent.eviction import Eviction, signals
from agent.eviction.thresholds import Threshold, Watch
from agent.images.collection import ImageGC
from agent.images.credentials.of_node import keyring, settle_images
from agent.images.manager import Images
from agent.images.records import ImageRecords
from agent.managers.container_manager import ContainerManager
from agent.node import allocatable as node_allocatable
from agent.node import machine, status
from agent.node.housekeeping import Housekeeping
from agent.node.lease import NodeLease
from agent.node.log_rotation import LogRotation
from agent.node.machine import Machine
from agent.node.registration import Node
from agent.node.runtime_status import RuntimeStatus
from agent.node.state import NodeState
from agent.notifier import Notifier
from agent.plugins.handler import CSI
from agent.plugins.registry import PluginRegistry
from agent.podresources.server import PodResources as PodResourcesServer
from agent.pods.dependencies import PodDependencies
from agent.pods.hooks import Hooks
from agent.pods.lifecycle_events import RelistHealth
from agent.pods.manager import PodManager
from agent.pods.mirrors import Mirrors
from agent.pods.references import ReferenceStore
from agent.pods.resource_state import PodResources
from agent.pods.static import StaticPods
from agent.pods.workers import PodWorkers
from agent.podspec.userns import UserNamespaces
from agent.preconditions import cgroup_driver, host_resolver, runtime_answers, text_of
from agent.probes import PodProber
from agent.runtime import Runtime
from agent.status.writer import StatusWriter
from agent.tasks import Tasks
from agent.threads import Threads
from agent.usage import cgroup
from agent.usage.collect import Collector
from agent.usage.machine import boot_time, processes
from agent.usage.model import Memory
from agent.usage.observed import Observed
from agent.usage.operations import Operations
from agent.usage.pod_starts import PodStarts
from agent.volumes import assembly as volumes_assembly
from agent.volumes.assembly import Volumes
from cri.client import Client as RuntimeClient
from kube.api import core_v1, node_v1
from kube.client import Client
from kube.clock import Clock, format_time
from kube.events import EventRecorder
from kube.informer import Informer


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What all groups are built from."""

    config: AgentConfig
    client: Client
    runtime: Runtime
    clock: Clock
    operations: Operations
    observed: Observed
    recorder: EventRecorder
    machine: Machine
    state: NodeState
    runtime_status: RuntimeStatus
    cgroups: Cgroups
    began: float
    """Since when the runtime answers, by the monotonic clock."""

    @property
    def pod_cgroups(self) -> Cgroups | None:
        """The cgroup tree, where pods have cgroups of their own."""
        return self.cgroups if self.config.cgroups_per_qos else None


@dataclass(frozen=True, slots=True)
class Resources:
    """What pods are assigned: processors, memory, devices, claims."""

    managers: ContainerManager
    device_plugins: Registration
    claim_drivers: Drivers
    plugins: PluginRegistry
    changed: Notifier
    """Notified when devices or their health change."""

    def start(self, tasks: Tasks, base: Base, pods: PodManager) -> None:
        tasks.start("device plugins", self.device_plugins.run())
        tasks.start("pod resources", PodResourcesServer(base.config.root_dir, self.managers, pods.views).run())
        tasks.start("claims' drivers", self.claim_drivers.run())
        tasks.loop("plugin registry", self.plugins.run)


@dataclass(frozen=True, slots=True)
class Pods:
    """What runs this node's pods."""

    manager: PodManager
    workers: PodWorkers
    prober: PodProber
    services: Informer[core_v1.Service]
    runtime_classes: Informer[node_v1.RuntimeClass]
    mirrors: Mirrors
    image_records: ImageRecords
    resources: PodResources

    async def start(self, tasks: Tasks, base: Base) -> None:
        """Run the workers, and the static pods, for which no API is needed."""
        config, clock = base.config, base.clock
        tasks.start("probes", self.prober.run())
        tasks.loop("follow Services", self.services.run)
        tasks.loop("follow RuntimeClasses", self.runtime_classes.run)
        tasks.start("pods", self.workers.run())
        rotation = LogRotation(
            base.runtime.client.runtime,
            self.manager,
            clock,
            max_bytes=config.log_max_bytes,
            max_files=config.log_max_files,
            period=config.log_check_period,
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


@dataclass(frozen=True, slots=True)
class Reclaim:
    """What measures use, and frees what is short or belongs to nobody."""

    collector: Collector
    image_gc: ImageGC
    eviction: Eviction
    housekeeping: Housekeeping

    def start(self, tasks: Tasks) -> None:
        tasks.loop("housekeeping", self.housekeeping.run)
        tasks.loop("image garbage collection", self.image_gc.run)
        tasks.loop("eviction", self.eviction.run)


@dataclass(frozen=True, slots=True)
class Agent:
    """All groups."""

    base: Base
    resources: Resources
    volumes: Volumes
    node: Node
    pods: Pods
    reclaim: Reclaim

    async def start_node(self, tasks: Tasks) -> None:
        """Register the node, then report its status and its drivers."""
        base, node, observed = self.base, self.node, self.base.observed
        await self.volumes.csi.restore()
        observed.before_registration.set(base.clock.monotonic() - base.began)
        await node.register()
        observed.registration.set(base.clock.monotonic() - base.began - observed.before_registration.value())
        self.volumes.start(tasks)
        self.resources.start(tasks, base, self.pods.manager)
        tasks.loop("node status", node.report_forever)
        config = base.config
        lease = NodeLease(base.client, config.node_name, node.uid, config.lease_duration, clock=base.clock)
        tasks.loop("node lease", lease.run)

    def start_reclaim(self, tasks: Tasks) -> None:
        """Release what pods that are gone had; the first list of pods must be in."""
        managers, views = self.resources.managers, self.pods.manager.views
        tasks.loop("container manager", lambda: managers.run(self.base.runtime.client.runtime, views))
        self.reclaim.start(tasks)

    async def ready(self) -> None:
        """Return when the node is Ready."""
        base, observed = self.base, self.base.observed
        await self.node.ready.wait()
        elapsed = base.clock.monotonic() - base.began
        observed.node_startup.set(observed.before_agent.value() + elapsed)
        until_registered = observed.before_registration.value() + observed.registration.value()
        observed.after_registration.set(elapsed - until_registered)


async def build(
    config: AgentConfig,
    client: Client,
    runtime: RuntimeClient,
    users: UserNamespaces,
    limits: tuple[Threshold, ...],
    address: str,
    operations: Operations,
    threads: Threads,
    clock: Clock,
) -> Agent:
    """Build all groups. `address` is the node's own where neither configuration nor machine names one."""
    thresholds = Watch(limits, config.eviction_pressure_transition)
    base = await _base(config, client, runtime, thresholds, address, operations, threads, clock)
    manager = PodManager(StatusWriter(client, clock=clock, observed=base.observed))
    references = ReferenceStore(client, manager.references_changed, clock=clock)
    classes: Informer[node_v1.RuntimeClass] = Informer(client, node_v1.RuntimeClass, clock=clock)
    resources = _resources(base)
    volumes = volumes_assembly.assemble(
        config, client, references, base.recorder, base.state, runtime_handler=partial(_handler, classes), clock=clock
    )
    relist = RelistHealth(clock)
    node = Node(
        config,
        client,
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
    pods = await _pods(base, resources, volumes, node, manager, references, classes, relist, users)
    reclaim = _reclaim(base, volumes, pods, thresholds)
    await settle_images(pods.image_records, runtime)
    await pods.workers.load()
    return Agent(base, resources, volumes, node, pods, reclaim)


async def _base(
    config: AgentConfig,
    client: Client,
    runtime: RuntimeClient,
    thresholds: Watch,
    address: str,
    operations: Operations,
    threads: Threads,
    clock: Clock,
) -> Base:
    here = machine.inspect(config.root_dir)
    state = NodeState(
        host_ips=config.node_ips or (address,),
        allocatable=status.allocatable(here, config),
        memory_capacity=here.memory,
        swap_capacity=here.swap,
        huge_page_sizes=tuple(here.huge_pages),
        resolver=host_resolver(config),
        host_file=text_of(config.hosts_file),
        app_armor=here.app_armor,
        pressures=lambda: thresholds.conditions(clock.monotonic()),
    )
    await runtime_answers(runtime, clock)
    bounded = Runtime(runtime, limit=max(4, 2 * (os.cpu_count() or 1)))
    observed = Observed(threads, bounded.limiter)
    observed.before_agent.set(time.time() - boot_time())
    cgroups = Cgroups(config.cgroup_root, await cgroup_driver(config, runtime))
    if config.cgroups_per_qos:
        reserved = (config.kube_reserved, config.system_reserved)
        pids = processes()[1]
        limits = node_allocatable.pods_limits(
            config.enforcement, *reserved, cpus=here.cpus, memory=here.memory, pids=pids
        )
        await cgroups.ensure_node(limits)
        await node_allocatable.enforce(config.enforcement, cgroups, *reserved)
    return Base(
        config=config,
        client=client,
        runtime=bounded,
        clock=clock,
        operations=operations,
        observed=observed,
        recorder=EventRecorder(client, "kubelet", config.node_name, clock=clock),
        machine=here,
        state=state,
        runtime_status=RuntimeStatus(runtime, state, clock=clock, most_images=config.status_max_images),
        cgroups=cgroups,
        began=clock.monotonic(),
    )


def _resources(base: Base) -> Resources:
    config, changed = base.config, Notifier()
    claim_drivers = Drivers(base.client, config.node_name, clock=base.clock, health_changed=changed.notify)
    managers = ContainerManager(
        config.root_dir,
        config.managers,
        reserved_cpus=status.reserved_cpus(config),
        clock=base.clock,
        devices_changed=changed.notify,
        claims=claims_assembly.maker(base.client, claim_drivers, config.root_dir),
        looks_up_cdi=base.runtime_status.looks_up_cdi,
    )
    plugins = PluginRegistry(config.plugins_registry_dir, clock=base.clock)
    return Resources(managers, Registration(managers.devices), claim_drivers, plugins, changed)


async def _pods(
    base: Base,
    resources: Resources,
    volumes: Volumes,
    node: Node,
    manager: PodManager,
    references: ReferenceStore,
    classes: Informer[node_v1.RuntimeClass],
    relist: RelistHealth,
    users: UserNamespaces,
) -> Pods:
    config, client, clock = base.config, base.client, base.clock
    starts = PodStarts(base.observed)
    records = ImageRecords(
        config.root_dir / "image_manager",
        lambda: format_time(clock.now()),
        config.image_verification,
        config.image_allowlist,
    )
    await asyncio.to_thread(records.load)
    images = Images(
        base.runtime.client,
        base.recorder,
        parallel=1 if config.serialize_image_pulls else config.max_parallel_image_pulls,
        back_off_max=config.back_off_max,
        keyring=keyring(config, client, clock),
        records=records,
        observed=base.observed,
        starts=starts,
        clock=clock,
    )
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
        resources=await asyncio.to_thread(PodResources, config.root_dir),
        services=services,
        recorder=base.recorder,
        writer=manager.writer,
        prober=prober,
        hooks=Hooks(base.runtime.client, clock=clock),
        cgroups=base.cgroups,
        managers=resources.managers,
        users=users,
        observed=base.observed,
        starts=starts,
        runtime_handler=partial(_handler, classes),
    )
    mirrors = Mirrors(client, config.node_name, clock=clock)
    workers = PodWorkers(deps, manager, mirrors, node.refresh, relist)
    return Pods(manager, workers, prober, services, classes, mirrors, records, deps.resources)


def _reclaim(base: Base, volumes: Volumes, pods: Pods, thresholds: Watch) -> Reclaim:
    config, state, clock, manager = base.config, base.state, base.clock, pods.manager
    collector = Collector(
        base.runtime.client,
        manager,
        clock,
        node_name=config.node_name,
        root_dir=config.root_dir,
        pods_dir=config.pods_dir,
        logs_dir=config.pod_logs_dir,
        persistent=volumes.manager.persistent_use,
        cgroups=base.pod_cgroups,
    )
    image_gc = ImageGC(
        base.runtime.client,
        clock,
        seen=pods.image_records.prune,
        mounted=lambda: [id for view in manager.views() for c in view.containers for id in c.mounted_images],
        high=config.image_gc_high_percent,
        low=config.image_gc_low_percent,
        minimum_age=config.image_minimum_age,
        maximum_age=config.image_maximum_age,
        observed=base.observed,
    )

    def pods_memory() -> Memory | None:
        tree = base.pod_cgroups
        return cgroup.memory_of(tree.fs.mount, tree.kubepods()) if tree is not None else None

    eviction = Eviction(
        manager,
        thresholds,
        signals.reader(config.root_dir, state.memory_capacity, pods_memory),
        collector.snapshot,
        image_gc.free,
        state.request_report,
        clock=clock,
        most_grace=config.eviction_max_pod_grace,
        observed=base.observed,
    )
    housekeeping = Housekeeping(
        lambda: manager.uids,
        volumes.manager,
        pods.resources,
        base.pod_cgroups,
        config.pod_logs_dir,
        config.container_logs_dir,
        clock=clock,
        observed=base.observed,
    )
    return Reclaim(collector, image_gc, eviction, housekeeping)


def _handler(classes: Informer[node_v1.RuntimeClass], name: str) -> str:
    """Return the runtime handler of a RuntimeClass. Raise KeyError where it does not exist."""
    found = classes.get(name)
    if found is None:
        raise KeyError(name)
    return found.handler
