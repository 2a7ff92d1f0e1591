"""Runs the controllers and the scheduler in the API server's process, on one set of informers.

They are clients like any other, over the in-process transport. One that ends by a bug is started again, later each time
(kube/loops.py); the server goes on meanwhile. Each controller acts as its service account in kube-system, the scheduler as
system:kube-scheduler; leases and the shared informers are the controller manager's (controllers/identities.py). Their
permissions are those of the default roles of these names.

Controllers and scheduler hold upstream's lease of their name while they work. A server with a store of its own simply writes
it: there is nobody to wait for. Where servers share a store they work in one of them each, which was elected. One that was
stopped and wakes writes nothing until it holds the lease again (kube.leases.Fenced); what it had sent before does no harm:
writes are compare-and-swap, and bindings are unique.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from control.auth.user import UserInfo
from control.components import embedded_ports
from control.config import ControlConfig
from control.controllers import controller_accounts
from control.controllers.identities import MANAGER, SCHEDULER, account_user
from control.event_loop import imports
from control.interfaces.local_nodes import LocalNodes
from kube import pki
from kube.build import user_agent
from kube.client import Client
from kube.clock import Clock
from kube.journal import Journal
from kube.leases import Fenced, LeaderElector, hold
from kube.loops import Loops
from kube.tracing.tracer import Tracer
from kube.uid import new_uid

if TYPE_CHECKING:
    from kube.shared_informers import SharedInformers

MakeClient = Callable[[UserInfo, str], Client]


def embedded_components(
    config: ControlConfig,
    make_client: MakeClient,
    clock: Clock,
    tracer: Tracer | None = None,
    local_nodes: LocalNodes | None = None,
    journal: Journal | None = None,
) -> list[tuple[str, Coroutine[Any, Any, None]]]:
    """Return what is to run beside the server, by name. Each runs until cancelled."""
    if not config.enable_controllers and not config.enable_scheduler:
        return []
    from kube.shared_informers import SharedInformers

    reader = (MANAGER, "kube-controller-manager") if config.enable_controllers else (SCHEDULER, "kube-scheduler")
    informers = SharedInformers(make_client(reader[0], user_agent(reader[1], "shared-informers")), clock)
    identity = f"{socket.gethostname()}_{new_uid()}"
    loops = Loops(clock)
    found = [("informers", loops.run("informers", informers.run))]
    for enabled, name, lease, user, run in (
        (
            config.enable_controllers,
            "controllers",
            "kube-controller-manager",
            MANAGER,
            partial(_run_controllers, local_nodes, journal),
        ),
        (config.enable_scheduler, "scheduler", "kube-scheduler", SCHEDULER, partial(_run_scheduler, tracer, journal)),
    ):
        if enabled:
            work = partial(run, config, clock, informers)
            found.append((name, loops.run(name, _elected(config, make_client, clock, identity, lease, user, work))))
    for enabled, name, lease, user, port in (
        (
            config.enable_controllers,
            "controllers port",
            "kube-controller-manager",
            MANAGER,
            config.controller_manager_port,
        ),
        (config.enable_scheduler, "scheduler port", "kube-scheduler", SCHEDULER, config.scheduler_port),
    ):
        if enabled and port:
            serve = partial(
                embedded_ports.serve, config, clock, lease, port, make_client(user, user_agent(lease, "port"))
            )
            found.append((name, loops.run(name, serve)))
    return found


def _elected(
    config: ControlConfig,
    make_client: MakeClient,
    clock: Clock,
    identity: str,
    lease: str,
    user: UserInfo,
    work: Callable[[MakeClient], Awaitable[None]],
) -> Callable[[], Awaitable[None]]:
    """Return a function that runs `work`, with a shared etcd only while this server is the elected leader.

    A server with a store of its own has no other candidate: its work always runs.
    """
    candidate = make_client(user, user_agent(lease, "leader-election"))
    if config.store != "etcd":
        return lambda: hold(candidate, lease, identity, lambda: work(make_client), clock)
    elector = LeaderElector(candidate, lease, identity, clock=clock)

    def fenced(user: UserInfo, agent: str) -> Client:
        return Client(Fenced(make_client(user, agent).transport, elector))

    return lambda: elector.run(lambda: work(fenced))


async def _run_controllers(
    local_nodes: LocalNodes | None,
    journal: Journal | None,
    config: ControlConfig,
    clock: Clock,
    informers: SharedInformers,
    make_client: MakeClient,
) -> None:
    await imports.ensure("control.controllers.manager")
    from control.controllers import configuration, manager
    from control.controllers.addons.settings import AddonSettings

    file = configuration.load(config.controller_config_file)
    settings = manager.ControllerConfig(
        cluster_cidr=config.pod_cidr,
        node_mask=config.node_cidr_mask,
        root_ca=config.serving_ca_file.read_text(),
        signing_cert=config.client_ca_file.read_text() if config.ca_key_file else "",
        signing_key=config.ca_key_file.read_text() if config.ca_key_file else "",
        server_names=_names(config.cert_file),
        cluster_domain=config.cluster_domain,
        service_account_key=config.service_account_key_file.read_text(),
        service_load_balancer=config.service_load_balancer,
        load_balancer_ports=config.load_balancer_ports,
        api_port=config.port,
        local_path=config.local_path_volumes,
        gateway=config.gateway,
        addons=None
        if config.addons_dir is None
        else AddonSettings(
            config.addons_dir,
            frozenset(config.disabled_addons),
            server=config.advertise_address,
            shared=config.store == "etcd",
            record=config.data_dir / "addons.json",
        ),
        autoscaling=file.autoscaling,
        lifecycle=file.lifecycle,
        legacy_tokens=file.legacy_tokens,
        local_nodes=local_nodes,
    )
    client = make_client(MANAGER, user_agent("kube-controller-manager"))

    def acting_as(account: str) -> Client:
        user = account_user(account)
        return make_client(user, user_agent("kube-controller-manager", user.name))

    async with asyncio.TaskGroup() as group:
        group.create_task(controller_accounts.ensure_all(client, clock), name="controllers' service accounts")
        await manager.run(client, settings, clock, informers, acting_as, journal)


async def _run_scheduler(
    tracer: Tracer | None,
    journal: Journal | None,
    config: ControlConfig,
    clock: Clock,
    informers: SharedInformers,
    make_client: MakeClient,
) -> None:
    await imports.ensure("control.scheduler.main", "control.scheduler.configuration")
    from control.scheduler import configuration, main

    path = config.scheduler_config_file
    settings = configuration.parse(path.read_bytes()) if path is not None else None
    client = make_client(SCHEDULER, user_agent("kube-scheduler", "scheduler"))
    await main.run(client, settings, clock, informers, tracer=tracer, journal=journal)


def _names(certificate: Path) -> frozenset[str]:
    """Return the names and addresses that the API server's certificate is for."""
    return frozenset(str(name.value) for name in pki.names_of(pki.decode_certificate(certificate.read_bytes())))
