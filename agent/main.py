"""The agent as one coroutine: has its parts made, starts them in the order they need each other, runs until told to stop.

Everything lives in one task group. Stopping it ends no container: what runs goes on without the agent, and the next
one finds it again by its labels. Loops that can begin anew at any time outlast their errors (kube/loops.py); an error of any
other part ends the agent, which is then started again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from agent import serving
from agent.assembly import Parts, assemble
from agent.config import AgentConfig
from agent.kubelet_configuration import ConfigError
from agent.node.lease import NodeLease
from agent.node.log_rotation import LogRotation
from agent.node.machine import own_address, swap_is_on
from agent.orphans.sweep import Sweep
from agent.podresources.server import PodResources
from agent.pods.static import StaticPods
from agent.preconditions import eviction_thresholds, user_namespaces
from agent.shutdown.logind import Logind
from agent.shutdown.manager import Shutdown
from agent.stopping import Stopped, Stopping
from agent.threads import Threads
from agent.usage.operations import Operations
from agent.volumes import propagation
from cri.client import Client as RuntimeClient
from kube import cancellation, certificates, kubeconfig, pki, servers
from kube.api import core_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.heartbeats import Heartbeats
from kube.informer import Informer
from kube.loops import Loops
from kube.servers import Servers
from kube.serving.daemon import daemon
from kube.transport import HttpsTransport

log = logging.getLogger(__name__)


@daemon
async def run(config: AgentConfig, *, ready: Callable[[], None] | None = None, clock: Clock = SYSTEM) -> None:
    """Run the agent until cancelled or told to stop by SIGTERM; `ready` is called when the node is Ready.

    Raise ConfigError where the configuration does not fit itself or the machine.
    """
    if config.kubeconfig is None:
        raise ConfigError("--kubeconfig is required")
    if config.fail_swap_on and await asyncio.to_thread(swap_is_on):
        raise ConfigError("running with swap on is not supported, please disable swap or set failSwapOn to false")
    limits = eviction_thresholds(config)
    await asyncio.to_thread(propagation.prepare, config.root_dir)
    users = await user_namespaces(config)
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
    operations = Operations()
    runtime = RuntimeClient(
        config.runtime_endpoint,
        config.image_endpoint,
        request_timeout=config.runtime_request_timeout,
        observe=operations.note,
    )
    refused: list[ConfigError] = []
    stopping = Stopping(runtime, clock)
    threads = Threads()
    threads.install()
    loops = Loops(clock, fatal=(ConfigError,))
    try:
        async with asyncio.TaskGroup() as group:

            def loop(name: str, work: Callable[[], Awaitable[None]]) -> None:
                group.create_task(loops.run(name, work), name=name)

            def part(name: str, work: Awaitable[None]) -> None:
                # The group takes a cancelled part for one that has ended.
                group.create_task(cancellation.as_error(work), name=name)

            part("signals", stopping.until_stopped())
            loop("follow the API servers", lambda: servers.follow(client, known))
            if config.rotate_certificates and Path(access.certificate_file).name == certificates.CLIENT.file:
                rotation = certificates.Rotation(
                    certificates.CLIENT,
                    Path(access.certificate_file).parent,
                    client,
                    lambda key: pki.kubelet_client_request(key, config.node_name),
                    transport.reconnect,
                    clock=clock,
                )
                loop("client certificate", rotation.run)
            parts = await assemble(config, client, heartbeat, runtime, users, limits, own_address(access.server), clock)
            parts.observed.threads = threads
            await _start(loop, part, parts, config, client, heartbeat, runtime, operations, clock)
            if ready is not None:
                ready()
    except* Stopped:
        log.info("stopping; containers run on")
    except* ConfigError as errors:
        refused += _alone(errors)
    finally:
        stopping.over()
        await runtime.close()
        await client.close()
    if refused:
        raise refused[0]  # by itself, not in a group of errors: it is a sentence for who wrote the configuration


def _alone(errors: BaseExceptionGroup[ConfigError]) -> Iterator[ConfigError]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _alone(error)
        else:
            yield error


async def _start(
    loop: Callable[[str, Callable[[], Awaitable[None]]], None],
    part: Callable[[str, Awaitable[None]], None],
    parts: Parts,
    config: AgentConfig,
    client: Client,
    heartbeat: Client,
    runtime: RuntimeClient,
    operations: Operations,
    clock: Clock,
) -> None:
    """Start the parts in the order they need each other: pods, the node, what the API says; returns when it is Ready."""
    observed, began = parts.observed, parts.began
    loop("events", parts.recorder.run)
    part("probes", parts.prober.run())
    loop("follow Services", parts.services.run)
    loop("follow RuntimeClasses", parts.classes.run)
    part("pods", parts.following.run())
    if config.shutdown_periods:
        shutdown = Shutdown(
            config.shutdown_periods,
            parts.pods,
            parts.state,
            parts.node,
            parts.recorder,
            lambda: Logind.connect(config.system_bus, clock),
            node_name=config.node_name,
            folder=config.root_dir,
            clock=clock,
        )
        loop("node shutdown", shutdown.run)
    rotation = LogRotation(
        runtime.runtime,
        parts.pods,
        clock,
        max_bytes=config.log_max_bytes,
        max_files=config.log_max_files,
        period=config.log_check_period,
    )
    loop("log rotation", rotation.run)
    if config.containerd is not None:
        orphans = Sweep(
            config.containerd,
            runtime,
            config.runtime_request_timeout,
            clock=clock,
            removed=observed.removed_orphans,
        )
        loop("orphans of the runtime", orphans.run)
    if config.static_pod_path is not None:
        static = StaticPods(config.static_pod_path, config.node_name, parts.following.static_pods_changed, clock=clock)
        await static.load()
        loop("static pods", static.run)
    if config.enable_server:
        part(
            "server",
            serving.serve(
                config,
                client,
                runtime,
                parts.pods,
                parts.node,
                parts.collector,
                parts.prober.counts,
                operations,
                observed,
                clock,
                parts.cgroups,
            ),
        )
    await parts.volumes.csi.restore()
    observed.before_registration.set(clock.monotonic() - began)
    await parts.node.register()
    observed.registration.set(clock.monotonic() - began - observed.before_registration.value())
    loop("CSINode", parts.volumes.nodes.ensure)
    loop("volume limits", parts.volumes.limits.run)
    part("device plugins", parts.device_plugins.run())
    part("pod resources", PodResources(config.root_dir, parts.managers, parts.pods.views).run())
    part("claims' drivers", parts.claim_drivers.run())
    loop("plugin registry", parts.plugins.run)
    loop("node status", parts.node.report_forever)
    lease = NodeLease(heartbeat, config.node_name, parts.node.uid, config.lease_duration, clock=clock)
    loop("node lease", lease.run)
    watch: Informer[core_v1.Pod] = Informer(
        client, core_v1.Pod, field_selector=f"spec.nodeName={config.node_name}", clock=clock
    )
    watch.subscribe(parts.following.pod_changed)
    loop("follow Pods", watch.run)
    await watch.wait_synced()
    parts.following.api_synced()
    loop("mirror pods", parts.mirrors.run)
    loop("housekeeping", parts.housekeeping.run)
    loop("container manager", lambda: parts.managers.run(runtime.runtime, parts.pods.views))
    loop("claims of pods that are gone", lambda: parts.managers.run_claims(parts.pods.views))
    loop("image garbage collection", parts.images.run)
    loop("eviction", parts.eviction.run)
    await parts.node.ready.wait()
    observed.node_startup.set(observed.before_agent.value() + clock.monotonic() - began)
    so_far = observed.before_registration.value() + observed.registration.value()
    observed.after_registration.set(clock.monotonic() - began - so_far)
