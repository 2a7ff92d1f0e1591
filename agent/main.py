"""The agent as one coroutine: builds its parts, starts them in the order they need each other, runs until told to stop.

Everything lives in one task group. Stopping it ends no container: what runs goes on without the agent, and the next
one finds it again by its labels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from agent import serving
from agent.cgroups.tree import Cgroups
from agent.claims import assembly as claims_assembly
from agent.claims.drivers import Drivers
from agent.config import AgentConfig
from agent.devices.registration import Registration
from agent.eviction import Eviction, signals
from agent.eviction.thresholds import Threshold, Watch, thresholds
from agent.images.collection import ImageGC
from agent.images.credentials.of_node import keyring, settle_images
from agent.images.manager import Images
from agent.images.records import ImageRecords
from agent.kubelet_configuration import ConfigError
from agent.managers.container_manager import ContainerManager
from agent.node import allocatable as node_allocatable
from agent.node import status as node_status
from agent.node.housekeeping import Housekeeping
from agent.node.log_rotation import LogRotation
from agent.node.machine import own_address, swap_is_on
from agent.node.registration import Node
from agent.plugins.handler import CSI
from agent.plugins.registry import PluginRegistry
from agent.podresources.server import PodResources
from agent.pods.following import PodManager
from agent.pods.hooks import Hooks
from agent.pods.mirrors import Mirrors
from agent.pods.references import ReferenceStore
from agent.pods.static import StaticPods
from agent.pods.toolbox import NodeState, Toolbox
from agent.podspec import dns, subordinate_ids
from agent.podspec.userns import UserNamespaces
from agent.probes import PodProber
from agent.runtime import Runtime
from agent.shutdown.logind import Logind
from agent.shutdown.manager import Shutdown
from agent.status.writer import StatusWriter
from agent.usage import cgroup
from agent.usage.collect import Collector
from agent.usage.machine import boot_time, processes
from agent.usage.observed import Observed
from agent.usage.operations import Operations
from agent.usage.pod_starts import PodStarts
from agent.volumes import assembly as volumes_assembly
from cri.client import Client as RuntimeClient
from cri.errors import CRIError, UnimplementedError
from kube import certificates, kubeconfig, pki, servers
from kube.api import core_v1, node_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock, format_time
from kube.events import EventRecorder
from kube.informer import Informer
from kube.servers import Servers
from kube.transport import HttpsTransport

log = logging.getLogger(__name__)

RUNTIME_RETRY_SECONDS = 0.25


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
    limits = _thresholds(config)
    users = await _user_namespaces(config)
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
            address = own_address(access.server)
            await _assemble(group, config, client, runtime, operations, users, limits, address, ready, clock)
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


async def _user_namespaces(config: AgentConfig) -> UserNamespaces:
    """Raise ConfigError where the IDs that the node has for pods cannot be used."""
    try:
        room = await subordinate_ids.usable(config.ids_per_pod, config.max_pods)
    except subordinate_ids.SubordinateIdsError as error:
        raise ConfigError(f"create user namespace manager: {error}") from error
    users = UserNamespaces(config.pods_dir, room, config.ids_per_pod)
    await asyncio.to_thread(users.load)
    return users


def _thresholds(config: AgentConfig) -> tuple[Threshold, ...]:
    """Raise ConfigError where the eviction thresholds do not fit together."""
    try:
        return thresholds(
            config.eviction_hard,
            config.eviction_soft,
            config.eviction_soft_grace,
            config.eviction_minimum_reclaim,
            pods_bounded=config.cgroups_per_qos and node_allocatable.PODS in config.enforcement.options,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


async def _assemble(
    group: asyncio.TaskGroup,
    config: AgentConfig,
    client: Client,
    runtime: RuntimeClient,
    operations: Operations,
    users: UserNamespaces,
    limits: tuple[Threshold, ...],
    address: str,
    ready: Callable[[], None] | None,
    clock: Clock,
) -> None:
    """Build the parts and start them: runtime first, then the node, then pods."""
    state = NodeState(resolver=_host_resolver(config), host_file=_text(config.hosts_file))
    recorder = EventRecorder(client, "kubelet", config.node_name, clock=clock)
    eviction: Eviction
    node = Node(config, client, runtime, recorder, state, clock=clock, pressures=lambda: eviction.pressures())
    if not state.host_ips:
        state.host_ips = (address,)
    await _runtime_answers(runtime, clock)
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

    observed = Observed()
    starts = PodStarts(observed)
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
        looks_up_cdi=node.runtime_looks_up_cdi,
    )

    def devices_changed() -> None:
        node.devices_changed()
        for uid in managers.device_owners:
            pods.outcome_changed(uid)

    claim_drivers.health_changed = devices_changed
    node.devices, node.forget_extended = managers.devices.capacity, managers.devices.fresh
    device_plugins = Registration(managers.devices)
    pods: PodManager
    references = ReferenceStore(client, lambda uids: pods.references_changed(uids), clock=clock)
    prober = PodProber(runtime.runtime, recorder, lambda uid: pods.outcome_changed(uid), clock)
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
    tools = Toolbox(
        config=config,
        clock=clock,
        node=state,
        runtime=Runtime(runtime, limit=max(4, 2 * (os.cpu_count() or 1))),
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
        services=services,
        recorder=recorder,
        writer=StatusWriter(client, clock=clock, observed=observed),
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
    pods = PodManager(tools, mirrors, node.refresh)
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
            lambda: cgroup.memory_of(cgroups.mount, cgroups.kubepods()) if config.cgroups_per_qos else None,
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
        cgroups if config.cgroups_per_qos else None,
        config.pod_logs_dir,
        config.container_logs_dir,
        clock=clock,
        observed=observed,
    )

    plugins.add_handler(device_plugins.kind, device_plugins)
    plugins.add_handler(claim_drivers.kind, claim_drivers)
    await settle_images(records, runtime)
    await pods.load()
    group.create_task(recorder.run(), name="events")
    group.create_task(prober.run(), name="probes")
    group.create_task(services.run(), name="follow Services")
    group.create_task(classes.run(), name="follow RuntimeClasses")
    group.create_task(pods.run(), name="pods")
    if config.shutdown_periods:
        shutdown = Shutdown(
            config.shutdown_periods,
            pods,
            state,
            node,
            recorder,
            lambda: Logind.connect(config.system_bus, clock),
            node_name=config.node_name,
            folder=config.root_dir,
            clock=clock,
        )
        group.create_task(shutdown.run(), name="node shutdown")
    rotation = LogRotation(
        runtime.runtime,
        pods,
        clock,
        max_bytes=config.log_max_bytes,
        max_files=config.log_max_files,
        period=config.log_check_period,
    )
    group.create_task(rotation.run(), name="log rotation")
    if config.static_pod_path is not None:
        static = StaticPods(config.static_pod_path, config.node_name, pods.static_pods_changed, clock=clock)
        await static.load()
        group.create_task(static.run(), name="static pods")
    if config.enable_server:
        group.create_task(
            serving.serve(
                config,
                client,
                runtime,
                pods,
                node,
                collector,
                prober.counts,
                operations,
                observed,
                clock,
                cgroups if config.cgroups_per_qos else None,
            ),
            name="server",
        )
    await volumes.csi.restore()
    observed.before_registration.set(clock.monotonic() - began)
    await node.register()
    observed.registration.set(clock.monotonic() - began - observed.before_registration.value())
    group.create_task(volumes.nodes.ensure(), name="CSINode")
    group.create_task(volumes.limits.run(), name="volume limits")
    group.create_task(device_plugins.run(), name="device plugins")
    group.create_task(PodResources(config.root_dir, managers, pods.views).run(), name="pod resources")
    group.create_task(claim_drivers.run(), name="claims' drivers")
    group.create_task(plugins.run(), name="plugin registry")
    group.create_task(node.report_forever(), name="node status")
    group.create_task(node.renew_forever(), name="node lease")
    watch: Informer[core_v1.Pod] = Informer(
        client, core_v1.Pod, field_selector=f"spec.nodeName={config.node_name}", clock=clock
    )
    watch.subscribe(pods.pod_changed)
    group.create_task(watch.run(), name="follow Pods")
    await watch.wait_synced()
    pods.api_synced()
    group.create_task(mirrors.run(), name="mirror pods")
    group.create_task(housekeeping.run(), name="housekeeping")
    group.create_task(managers.run(runtime.runtime, pods.views), name="container manager")
    group.create_task(images.run(), name="image garbage collection")
    group.create_task(eviction.run(), name="eviction")
    await node.ready.wait()
    observed.node_startup.set(observed.before_agent.value() + clock.monotonic() - began)
    so_far = observed.before_registration.value() + observed.registration.value()
    observed.after_registration.set(clock.monotonic() - began - so_far)
    if ready is not None:
        ready()


async def _runtime_answers(runtime: RuntimeClient, clock: Clock) -> None:
    """Wait for the container runtime: nothing can be decided before it is known what runs."""
    told = False
    while True:
        try:
            await runtime.runtime.version()
            return
        except CRIError as error:
            if not told:
                log.info("waiting for the container runtime: %s", error)
                told = True
            await clock.sleep(RUNTIME_RETRY_SECONDS)


async def cgroup_driver(config: AgentConfig, runtime: RuntimeClient) -> str:
    """Ask the runtime which of them makes cgroups; one that does not tell (containerd before 2.0) has the file's word."""
    try:
        found = await runtime.runtime.cgroup_driver()
    except CRIError as error:
        if not isinstance(error, UnimplementedError):
            log.warning("the runtime's cgroup driver: %s", error)
        return config.cgroup_driver
    if found != config.cgroup_driver:
        log.info("cgroup driver %s, as the container runtime says", found)
    return found


def _handler(classes: Informer[node_v1.RuntimeClass], name: str) -> str:
    found = classes.get(name)
    if found is None:
        raise KeyError(name)
    return found.handler


def _host_resolver(config: AgentConfig) -> dns.Resolver:
    if not config.resolv_conf:
        # Upstream's answer to resolvConf: "": nothing can be resolved.
        return dns.Resolver(("127.0.0.1",), (".",))
    return dns.parse(_text(Path(config.resolv_conf)))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        log.warning("%s: %s", path, error.strerror)
        return ""
