"""The agent as one coroutine: has its parts made, starts them in the order they need each other, runs until told to stop.

Everything lives in one task group. Stopping it ends no container: what runs goes on without the agent, and the next
one finds it again by its labels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from agent import serving
from agent.assembly import Parts, assemble
from agent.config import AgentConfig
from agent.kubelet_configuration import ConfigError
from agent.node.lease import NodeLease
from agent.node.log_rotation import LogRotation
from agent.node.machine import own_address, swap_is_on
from agent.podresources.server import PodResources
from agent.pods.static import StaticPods
from agent.preconditions import eviction_thresholds, user_namespaces
from agent.shutdown.logind import Logind
from agent.shutdown.manager import Shutdown
from agent.usage.operations import Operations
from cri.client import Client as RuntimeClient
from kube import certificates, kubeconfig, pki, servers
from kube.api import core_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.informer import Informer
from kube.servers import Servers
from kube.transport import HttpsTransport

log = logging.getLogger(__name__)


class _Stop(Exception):
    """SIGTERM came."""


async def run(config: AgentConfig, *, ready: Callable[[], None] | None = None, clock: Clock = SYSTEM) -> None:
    """Run the agent until cancelled or told to stop by SIGTERM; `ready` is called when the node is Ready.

    Raise ConfigError where the configuration does not fit itself or the machine.
    """
    if config.kubeconfig is None:
        raise ConfigError("--kubeconfig is required")
    if config.fail_swap_on and await asyncio.to_thread(swap_is_on):
        raise ConfigError("running with swap on is not supported, please disable swap or set failSwapOn to false")
    limits = eviction_thresholds(config)
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
    operations = Operations()
    runtime = RuntimeClient(
        config.runtime_endpoint,
        config.image_endpoint,
        request_timeout=config.runtime_request_timeout,
        observe=operations.note,
    )
    refused: list[ConfigError] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_until_stopped(), name="signals")
            group.create_task(servers.follow(client, known), name="follow the API servers")
            if config.rotate_certificates and Path(access.certificate_file).name == certificates.CLIENT.file:
                rotation = certificates.Rotation(
                    certificates.CLIENT,
                    Path(access.certificate_file).parent,
                    client,
                    lambda key: pki.kubelet_client_request(key, config.node_name),
                    transport.reconnect,
                    clock=clock,
                )
                group.create_task(rotation.run(), name="client certificate")
            parts = await assemble(config, client, runtime, users, limits, own_address(access.server), clock)
            await _start(group, parts, config, client, runtime, operations, clock)
            if ready is not None:
                ready()
    except* _Stop:
        log.info("stopping; containers run on")
    except* ConfigError as errors:
        refused += _alone(errors)
    finally:
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


async def _until_stopped() -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ValueError, RuntimeError):  # signals reach the main thread alone
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        await stopped.wait()
    finally:
        with contextlib.suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGTERM)
    raise _Stop


async def _start(
    group: asyncio.TaskGroup,
    parts: Parts,
    config: AgentConfig,
    client: Client,
    runtime: RuntimeClient,
    operations: Operations,
    clock: Clock,
) -> None:
    """Start the parts in the order they need each other: pods, the node, what the API says; returns when it is Ready."""
    observed, began = parts.observed, parts.began
    group.create_task(parts.recorder.run(), name="events")
    group.create_task(parts.prober.run(), name="probes")
    group.create_task(parts.services.run(), name="follow Services")
    group.create_task(parts.classes.run(), name="follow RuntimeClasses")
    group.create_task(parts.following.run(), name="pods")
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
        group.create_task(shutdown.run(), name="node shutdown")
    rotation = LogRotation(
        runtime.runtime,
        parts.pods,
        clock,
        max_bytes=config.log_max_bytes,
        max_files=config.log_max_files,
        period=config.log_check_period,
    )
    group.create_task(rotation.run(), name="log rotation")
    if config.static_pod_path is not None:
        static = StaticPods(config.static_pod_path, config.node_name, parts.following.static_pods_changed, clock=clock)
        await static.load()
        group.create_task(static.run(), name="static pods")
    if config.enable_server:
        group.create_task(
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
            name="server",
        )
    await parts.volumes.csi.restore()
    observed.before_registration.set(clock.monotonic() - began)
    await parts.node.register()
    observed.registration.set(clock.monotonic() - began - observed.before_registration.value())
    group.create_task(parts.volumes.nodes.ensure(), name="CSINode")
    group.create_task(parts.volumes.limits.run(), name="volume limits")
    group.create_task(parts.device_plugins.run(), name="device plugins")
    group.create_task(PodResources(config.root_dir, parts.managers, parts.pods.views).run(), name="pod resources")
    group.create_task(parts.claim_drivers.run(), name="claims' drivers")
    group.create_task(parts.plugins.run(), name="plugin registry")
    group.create_task(parts.node.report_forever(), name="node status")
    lease = NodeLease(client, config.node_name, parts.node.uid, config.lease_duration, clock=clock)
    group.create_task(lease.run(), name="node lease")
    watch: Informer[core_v1.Pod] = Informer(
        client, core_v1.Pod, field_selector=f"spec.nodeName={config.node_name}", clock=clock
    )
    watch.subscribe(parts.following.pod_changed)
    group.create_task(watch.run(), name="follow Pods")
    await watch.wait_synced()
    parts.following.api_synced()
    group.create_task(parts.mirrors.run(), name="mirror pods")
    group.create_task(parts.housekeeping.run(), name="housekeeping")
    group.create_task(parts.managers.run(runtime.runtime, parts.pods.views), name="container manager")
    group.create_task(parts.images.run(), name="image garbage collection")
    group.create_task(parts.eviction.run(), name="eviction")
    await parts.node.ready.wait()
    observed.node_startup.set(observed.before_agent.value() + clock.monotonic() - began)
    so_far = observed.before_registration.value() + observed.registration.value()
    observed.after_registration.set(clock.monotonic() - began - so_far)
