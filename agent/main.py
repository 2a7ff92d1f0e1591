"""The agent as one coroutine: builds its groups (assembly/), starts them in stages, runs until SIGTERM.

All parts run in one task group. Stopping it stops no container: containers keep running without the agent, and the next agent
finds them by their labels. A loop that can start again at any time is restarted after an error (kube/loops.py); an error of
any other part ends the agent, which is then started again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from agent import cri_spans
from agent.assembly import kubelet_port
from agent.assembly.agent import Agent, build
from agent.config import AgentConfig
from agent.kubelet_configuration import ConfigError
from agent.node.loopback_guard import LoopbackGuard
from agent.node.machine import own_address, swap_is_on
from agent.orphans.sweep import Sweep
from agent.preconditions import eviction_thresholds, user_namespaces
from agent.shutdown.logind import Logind
from agent.shutdown.manager import Shutdown
from agent.sigterm import SigtermHandler, Terminated
from agent.tasks import Tasks
from agent.threads import Threads
from agent.usage.operations import Operations
from agent.volumes import propagation
from cri.client import Client as RuntimeClient
from kube import certificates, kubeconfig, pki, servers
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.heartbeats import Heartbeats
from kube.loops import Loops
from kube.servers import Servers
from kube.serving.daemon import node_daemon
from kube.tracing import start as tracing
from kube.tracing.configuration import TracingError
from kube.tracing.tracer import Tracer
from kube.transport import HttpsTransport

log = logging.getLogger(__name__)
COLLECT = (10_000, 10, 50)
"""The collector's thresholds. Objects here are trees, which go by reference count; a collection of all objects blocks the event
loop for 0.4 s of CPU time if pods have 36 000 containers, with Python's thresholds every few seconds. One of as many young
objects as the API server's thresholds have blocks it for 0.2 s."""


@node_daemon
async def run(config: AgentConfig, *, ready: Callable[[], None] | None = None, clock: Clock = SYSTEM) -> None:
    """Run the agent until cancelled or SIGTERM; `ready` is called when the node is Ready, or lacks only a pod network.

    Raise ConfigError if the configuration contradicts itself or the machine.
    """
    if config.kubeconfig is None:
        raise ConfigError("--kubeconfig is required")
    if config.fail_swap_on and await asyncio.to_thread(swap_is_on):
        raise ConfigError("running with swap on is not supported, please disable swap or set failSwapOn to false")
    limits = eviction_thresholds(config)
    await asyncio.to_thread(propagation.prepare, config.root_dir)
    users = await user_namespaces(config)
    gc.set_threshold(*COLLECT)
    if config.not_acted_on:
        log.warning("accepted without effect: %s", ", ".join(config.not_acted_on))
    if config.bootstrap_kubeconfig is not None and not await asyncio.to_thread(config.kubeconfig.exists):
        await certificates.bootstrap(
            config.bootstrap_kubeconfig, config.kubeconfig, config.cert_dir, config.node_name, clock=clock
        )
    access = kubeconfig.load(config.kubeconfig)
    known = Servers(access.server, servers.beside(config.kubeconfig))
    transport = HttpsTransport(access, "kubelet/v1.36.2 (linux) wherry", known)
    client = Client(transport)
    heartbeat = Client(Heartbeats(transport, min(config.status_update_period, config.lease_duration)))
    tracer = await _tracer(config)
    operations = Operations()
    runtime = RuntimeClient(
        config.runtime_endpoint,
        config.image_endpoint,
        request_timeout=config.runtime_request_timeout,
        observe=operations.record,
        trace=cri_spans.call if tracer is not None else None,
    )
    refused: list[ConfigError] = []
    sigterm = SigtermHandler(runtime, clock)
    threads = Threads()
    threads.install()
    loops = Loops(clock, fatal=(ConfigError,))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group, loops)
            tasks.start("signals", sigterm.until_stopped())
            tasks.loop("follow the API servers", lambda: servers.follow(client, known))
            if config.rotate_certificates and Path(access.certificate_file).name == certificates.CLIENT.file:
                folder = Path(access.certificate_file).parent
                tasks.loop("client certificate", _rotation(config, folder, client, transport, clock).run)
            address = own_address(access.server)
            agent = await build(
                config, client, heartbeat, runtime, users, limits, address, operations, threads, clock, tracer
            )
            await _start(tasks, agent)
            if ready is not None:
                ready()
    except* Terminated:
        log.info("stopping; containers keep running")
    except* ConfigError as errors:
        refused += _alone(errors)
    finally:
        sigterm.over()
        await runtime.close()
        await client.close()
        if tracer is not None:
            await tracer.close()
    if refused:
        raise refused[0]  # by itself, not in a group of errors: it is a sentence for who wrote the configuration


async def _tracer(config: AgentConfig) -> Tracer | None:
    """Return the tracer, None if tracing is not configured. Raise ConfigError."""
    try:
        return await tracing.start(config.file.tracing, {"service.name": "kubelet", "host.name": config.node_name})
    except TracingError as error:
        raise ConfigError(str(error)) from error


def _rotation(
    config: AgentConfig, folder: Path, client: Client, transport: HttpsTransport, clock: Clock
) -> certificates.Rotation:
    """Return the renewal of the client certificate in a folder."""
    return certificates.Rotation(
        certificates.CLIENT,
        folder,
        client,
        lambda key: pki.kubelet_client_request(key, config.node_name),
        transport.reconnect,
        clock=clock,
    )


def _alone(errors: BaseExceptionGroup[ConfigError]) -> Iterator[ConfigError]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _alone(error)
        else:
            yield error


async def _start(tasks: Tasks, agent: Agent) -> None:
    """Start the groups in stages: pods, the node, the API's pods, reclaim; returns when the node can run pods."""
    base, config, clock = agent.base, agent.base.config, agent.base.clock
    tasks.loop("events", base.recorder.run)
    if config.loopback_guard:
        guard = LoopbackGuard(clock)
        await guard.verify()  # before a pod starts
        tasks.loop("guard of loopback addresses", guard.run)
    if config.shutdown_periods:
        shutdown = Shutdown(
            config.shutdown_periods,
            agent.pods.manager,
            base.state,
            base.recorder,
            lambda: Logind.connect(config.system_bus, clock),
            node_name=config.node_name,
            folder=config.root_dir,
            clock=clock,
        )
        tasks.loop("node shutdown", shutdown.run)
    if config.containerd is not None:
        removed, timeout = base.metrics.removed_orphans, config.runtime_request_timeout
        orphans = Sweep(config.containerd, base.runtime.client, timeout, clock=clock, removed=removed)
        tasks.loop("orphans of the runtime", orphans.run)
    await agent.pods.start(tasks, base)
    if config.enable_server:
        tasks.start("server", kubelet_port.serve(agent))
    await agent.start_node(tasks)
    await agent.pods.start_api_pods(tasks, base)
    agent.start_reclaim(tasks)
    tasks.start("start-up metrics", agent.measure_startup())
    await agent.usable()
