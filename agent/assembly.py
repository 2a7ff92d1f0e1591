"""The agent's parts, made and joined to one another. Nothing runs yet, but the runtime has answered and pods are loaded.

Several parts need each other (the node its evictions, evictions the pods, pods the node), so some are reached by a function
that looks them up when it is called.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

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
from agent.node import status as node_status
from agent.node.housekeeping import Housekeeping
from agent.node.registration import Node
from agent.node.state import NodeState
from agent.plugins.handler import CSI
from agent.plugins.registry import PluginRegistry
from agent.pods.dependencies import PodDependencies
from agent.pods.hooks import Hooks
from agent.pods.manager import PodManager
from agent.pods.mirrors import Mirrors
from agent.pods.references import ReferenceStore
from agent.pods.resource_state import PodResources
from agent.pods.workers import PodWorkers
from agent.podspec.userns import UserNamespaces
from agent.preconditions import cgroup_driver, host_resolver, runtime_answers, text_of
from agent.probes import PodProber
from agent.runtime import Runtime
from agent.status.writer import StatusWriter
from agent.usage import cgroup
from agent.usage.collect import Collector
from agent.usage.machine import boot_time, processes
from agent.usage.observed import Observed
from agent.usage.pod_starts import PodStarts
from agent.volumes import assembly as volumes_assembly
from cri.client import Client as RuntimeClient
from kube.api import core_v1, node_v1
from kube.client import Client
from kube.clock import Clock, format_time
from kube.events import EventRecorder
from kube.informer import Informer


@dataclass(frozen=True, slots=True)
class Parts:
    """What there is to start."""

    node: Node
    state: NodeState
    recorder: EventRecorder
    pods: PodManager
    following: PodWorkers
    prober: PodProber
    services: Informer[core_v1.Service]
    classes: Informer[node_v1.RuntimeClass]
    volumes: volumes_assembly.Volumes
    managers: ContainerManager
    device_plugins: Registration
    claim_drivers: Drivers
    plugins: PluginRegistry
    mirrors: Mirrors
    collector: Collector
    images: ImageGC
    eviction: Eviction
    housekeeping: Housekeeping
    cgroups: Cgroups | None
    observed: Observed
    began: float
    """Since when the runtime answers, by the monotonic clock."""


async def assemble(
    config: AgentConfig,
    client: Client,
    runtime: RuntimeClient,
    users: UserNamespaces,
    limits: tuple[Threshold, ...],
    address: str,
    clock: Clock,
) -> Parts:
    """Make all parts; returns once the runtime answers, the node's cgroups stand and what runs is known.

    `address` is the node's own where neither configuration nor machine names one.
    """
    state = NodeState(resolver=host_resolver(config), host_file=text_of(config.hosts_file))
    recorder = EventRecorder(client, "kubelet", config.node_name, clock=clock)
    eviction: Eviction
    node = Node(config, client, runtime, recorder, state, clock=clock, pressures=lambda: eviction.pressures())
    if not state.host_ips:
        state.host_ips = (address,)
    await runtime_answers(runtime, clock)
    cgroups = Cgroups(config.cgroup_root, await cgroup_driver(config, runtime))
    if config.cgroups_per_qos:
        reserved = (config.kube_reserved, config.system_reserved)
        machine = node.machine
        together = node_allocatable.pods_limits(
            config.enforcement,
            *reserved,
            cpus=machine.cpus,
            memory=machine.memory,
            pids=processes()[1],
        )
        await cgroups.ensure_node(together)
        await node_allocatable.enforce(config.enforcement, cgroups, *reserved)

    observed, bounded = Observed(), Runtime(runtime, limit=max(4, 2 * (os.cpu_count() or 1)))
    observed.runtime_calls = bounded.limiter
    starts = PodStarts(observed)
    writer = StatusWriter(client, clock=clock, observed=observed)
    pods = PodManager(writer)
    began = clock.monotonic()
    observed.before_agent.set(time.time() - boot_time())
    claim_drivers = Drivers(client, config.node_name, clock=clock)
    managers = ContainerManager(
        config.root_dir,
        config.managers,
        reserved_cpus=node_status.reserved_cpus(config),
        clock=clock,
        devices_changed=lambda: devices_changed(),
        claims=claims_assembly.maker(client, claim_drivers, config.root_dir),
        looks_up_cdi=node.runtime.looks_up_cdi,
    )

    def devices_changed() -> None:
        node.devices_changed()
        for uid in managers.device_owners:
            pods.outcome_changed(uid)

    claim_drivers.health_changed = devices_changed
    node.devices, node.forget_extended = managers.devices.capacity, managers.devices.fresh
    device_plugins = Registration(managers.devices)
    references = ReferenceStore(client, pods.references_changed, clock=clock)
    prober = PodProber(runtime.runtime, recorder, pods.outcome_changed, clock)
    services: Informer[core_v1.Service] = Informer(client, core_v1.Service, clock=clock)
    classes: Informer[node_v1.RuntimeClass] = Informer(client, node_v1.RuntimeClass, clock=clock)
    volumes = volumes_assembly.assemble(
        config,
        client,
        references,
        recorder,
        state,
        look=node.look,
        runtime_handler=lambda name: _handler(classes, name),
        clock=clock,
    )
    node.volumes_in_use = volumes.attachments.in_use
    records = ImageRecords(
        config.root_dir / "image_manager",
        lambda: format_time(clock.now()),
        config.image_verification,
        config.image_allowlist,
    )
    await asyncio.to_thread(records.load)
    tools = PodDependencies(
        config=config,
        clock=clock,
        node=state,
        runtime=bounded,
        images=Images(
            runtime,
            recorder,
            parallel=1 if config.serialize_image_pulls else config.max_parallel_image_pulls,
            back_off_max=config.back_off_max,
            keyring=keyring(config, client, clock),
            records=records,
            observed=observed,
            starts=starts,
            clock=clock,
        ),
        volumes=volumes.manager,
        references=references,
        resources=await asyncio.to_thread(PodResources, config.root_dir),
        services=services,
        recorder=recorder,
        writer=writer,
        prober=prober,
        hooks=Hooks(runtime, clock=clock),
        cgroups=cgroups,
        managers=managers,
        users=users,
        observed=observed,
        starts=starts,
        runtime_handler=lambda name: _handler(classes, name),
    )
    plugins = PluginRegistry(config.plugins_registry_dir, clock=clock)
    plugins.add_handler(CSI, volumes.drivers)
    mirrors = Mirrors(client, config.node_name, clock=clock)
    following = PodWorkers(tools, pods, mirrors, node.refresh)
    node.listing_problem = following.listing_problem
    collector = Collector(
        runtime,
        pods,
        clock,
        node_name=config.node_name,
        root_dir=config.root_dir,
        pods_dir=config.pods_dir,
        logs_dir=config.pod_logs_dir,
        persistent=volumes.manager.persistent_use,
        cgroups=cgroups if config.cgroups_per_qos else None,
    )
    images = ImageGC(
        runtime,
        clock,
        seen=records.prune,
        mounted=lambda: [id for view in pods.views() for c in view.containers for id in c.mounted_images],
        high=config.image_gc_high_percent,
        low=config.image_gc_low_percent,
        minimum_age=config.image_minimum_age,
        maximum_age=config.image_maximum_age,
        observed=observed,
    )
    eviction = Eviction(
        pods,
        Watch(limits, config.eviction_pressure_transition),
        signals.reader(
            config.root_dir,
            state.memory_capacity,
            lambda: cgroup.memory_of(cgroups.fs.mount, cgroups.kubepods()) if config.cgroups_per_qos else None,
        ),
        collector.snapshot,
        images.free,
        node.look,
        clock=clock,
        most_grace=config.eviction_max_pod_grace,
        observed=observed,
    )
    housekeeping = Housekeeping(
        lambda: pods.uids,
        tools.volumes,
        tools.resources,
        cgroups if config.cgroups_per_qos else None,
        config.pod_logs_dir,
        config.container_logs_dir,
        clock=clock,
        observed=observed,
    )

    plugins.add_handler(device_plugins.kind, device_plugins)
    plugins.add_handler(claim_drivers.kind, claim_drivers)
    await settle_images(records, runtime)
    await following.load()
    return Parts(
        node=node,
        state=state,
        recorder=recorder,
        pods=pods,
        following=following,
        prober=prober,
        services=services,
        classes=classes,
        volumes=volumes,
        managers=managers,
        device_plugins=device_plugins,
        claim_drivers=claim_drivers,
        plugins=plugins,
        mirrors=mirrors,
        collector=collector,
        images=images,
        eviction=eviction,
        housekeeping=housekeeping,
        cgroups=cgroups if config.cgroups_per_qos else None,
        observed=observed,
        began=began,
    )


def _handler(classes: Informer[node_v1.RuntimeClass], name: str) -> str:
    found = classes.get(name)
    if found is None:
        raise KeyError(name)
    return found.handler
