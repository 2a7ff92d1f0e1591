"""Builds the objects that all groups share: clients, clock, metrics, the node's state and cgroups."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from agent.cgroups import node_allocatable
from agent.cgroups.tree import Cgroups
from agent.config import AgentConfig
from agent.eviction.thresholds import ThresholdTracker
from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.node import machine, status
from agent.node.machine import Machine
from agent.node.runtime_status import RuntimeStatus
from agent.node.state import NodeState
from agent.preconditions import cgroup_driver, host_resolver, runtime_answers, text_of
from agent.runtime import Runtime
from agent.threads import Threads
from agent.usage.machine import boot_time, processes
from agent.usage.operations import Operations
from agent.volumes import cleanup
from cri.client import Client as RuntimeClient
from kube.client import Client
from kube.clock import Clock
from kube.events import EventRecorder
from kube.journal import Journal
from kube.tracing.tracer import Tracer

JOURNAL_BYTES = 4 << 20
FAILED_PROBES = ("Unhealthy", "ProbeWarning")
"""Events that the journal leaves out: it has the probes that changed the state of a container (agent/probes/prober.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Clients, clock, metrics and state that all groups are built from."""

    config: AgentConfig
    client: Client
    heartbeat: Client
    """Sends the node's status and lease."""
    runtime: Runtime
    clock: Clock
    operations: Operations
    metrics: KubeletMetrics
    recorder: EventRecorder
    journal: Journal
    """Decisions of this agent process."""
    machine: Machine
    state: NodeState
    runtime_status: RuntimeStatus
    cgroups: Cgroups
    began: float
    """Since when the runtime answers, by the monotonic clock."""
    tracer: Tracer | None = None
    """None if tracing is not configured."""

    @property
    def pod_cgroups(self) -> Cgroups | None:
        """The cgroup tree, where pods have cgroups of their own."""
        return self.cgroups if self.config.cgroups_per_qos else None


async def build_base(
    config: AgentConfig,
    client: Client,
    heartbeat: Client,
    runtime: RuntimeClient,
    thresholds: ThresholdTracker,
    address: str,
    operations: Operations,
    threads: Threads,
    clock: Clock,
    tracer: Tracer | None = None,
) -> Base:
    """Return once the runtime answers and the node's cgroups exist. `address`: see agent.build."""
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
    bounded = Runtime(
        runtime, limit=max(4, 2 * (os.cpu_count() or 1)), folders=lambda: cleanup.orphans(config.pods_dir, set())
    )
    journal = Journal(clock, JOURNAL_BYTES)
    metrics = KubeletMetrics((threads, bounded.limiter))
    metrics.before_agent.set(time.time() - boot_time())
    return Base(
        config=config,
        client=client,
        heartbeat=heartbeat,
        runtime=bounded,
        clock=clock,
        operations=operations,
        metrics=metrics,
        recorder=EventRecorder(
            client, "kubelet", config.node_name, clock=clock, journal=journal, left_out=FAILED_PROBES
        ),
        journal=journal,
        machine=here,
        state=state,
        runtime_status=RuntimeStatus(
            runtime,
            state,
            clock=clock,
            most_images=config.status_max_images,
            network=config.required_network,
        ),
        cgroups=await _cgroups(config, runtime, here),
        began=clock.monotonic(),
        tracer=tracer,
    )


async def _cgroups(config: AgentConfig, runtime: RuntimeClient, here: Machine) -> Cgroups:
    """Return the cgroup tree, with the node's cgroups where pods have cgroups of their own. Raise ConfigError."""
    cgroups = Cgroups(config.cgroup_root, await cgroup_driver(config, runtime))
    if config.cgroups_per_qos:
        reserved = (config.kube_reserved, config.system_reserved)
        pids = processes()[1]
        limits = node_allocatable.pods_limits(
            config.enforcement, *reserved, cpus=here.cpus, memory=here.memory, pids=pids
        )
        await cgroups.ensure_node(limits)
        await node_allocatable.enforce(config.enforcement, cgroups, *reserved)
    return cgroups
