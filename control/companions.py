"""What runs beside the API server in its process: the controllers and the scheduler, on one set of informers.

They are clients like any other, over the in-process transport. One that ends by a bug is started again, later each time; the
server goes on meanwhile. Controllers act as the controller manager with the rights of system:masters, since upstream gives
each controller a service account of its own, and here they share one client.

Controllers and scheduler hold upstream's lease of their name while they work. A server with a store of its own simply writes
it: there is nobody to wait for. Where servers share a store they work in one of them each, which was elected. One that was
stopped and wakes writes nothing until it holds the lease again (kube.leases.Fenced); what it had sent before does no harm:
writes are compare-and-swap, and bindings are unique.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from control.auth.user import SYSTEM_MASTERS, UserInfo
from control.config import ControlConfig
from kube import pki
from kube.client import Client
from kube.clock import Clock
from kube.leases import Fenced, LeaderElector, hold
from kube.uid import new_uid

log = logging.getLogger(__name__)
SCHEDULER = UserInfo("system:kube-scheduler")
CONTROLLERS = UserInfo("system:kube-controller-manager", groups=(SYSTEM_MASTERS,))
FIRST_RESTART, LAST_RESTART = 0.5, 30.0
"""Seconds before the first and the later restarts of something that failed."""

MakeClient = Callable[[UserInfo, str], Client]


def companions(
    config: ControlConfig, make_client: MakeClient, clock: Clock
) -> list[tuple[str, Coroutine[Any, Any, None]]]:
    """Return what is to run beside the server, by name. Each runs until cancelled."""
    if not config.enable_controllers and not config.enable_scheduler:
        return []
    from control.controllers.context import SharedInformers

    identity = f"{socket.gethostname()}_{new_uid()}"

    def elected(name: str, user: UserInfo, work: Callable[[Client], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Return work that is done only while this server holds the lease; all of it where the store is its own."""
        client = make_client(user, name)
        if config.store == "sqlite":
            return lambda: hold(make_client(CONTROLLERS, name), name, identity, lambda: work(client), clock)
        elector = LeaderElector(make_client(CONTROLLERS, name), name, identity, clock=clock)
        fenced = Client(Fenced(client.transport, elector))
        return lambda: elector.run(lambda: work(fenced))

    informers = SharedInformers(make_client(CONTROLLERS, "kube-controller-manager"), clock)
    found = [("informers", _supervised("informers", informers.run))]
    if config.enable_controllers:

        async def controllers(client: Client) -> None:
            from control.controllers import configuration, manager

            file = configuration.load(config.controller_config_file)
            settings = manager.ControllerConfig(
                cluster_cidr=config.pod_cidr,
                node_mask=config.node_cidr_mask,
                root_ca=config.serving_ca_file.read_text(),
                signing_cert=config.client_ca_file.read_text() if config.ca_key_file else "",
                signing_key=config.ca_key_file.read_text() if config.ca_key_file else "",
                server_names=_names(config.cert_file),
                service_account_key=config.service_account_key_file.read_text(),
                service_load_balancer=config.service_load_balancer,
                api_port=config.port,
                local_path=config.local_path_volumes,
                autoscaling=file.autoscaling,
                lifecycle=file.lifecycle,
                legacy_tokens=file.legacy_tokens,
            )
            await manager.run(client, settings, clock, informers)

        work = elected("kube-controller-manager", CONTROLLERS, controllers)
        found.append(("controllers", _supervised("controllers", work)))
    if config.enable_scheduler:

        async def scheduler(client: Client) -> None:
            from control.scheduler import configuration, main

            path = config.scheduler_config_file
            settings = configuration.parse(path.read_bytes()) if path is not None else None
            await main.run(client, settings, clock, informers)

        found.append(("scheduler", _supervised("scheduler", elected("kube-scheduler", SCHEDULER, scheduler))))
    return found


def _names(certificate: Path) -> frozenset[str]:
    """Return the names and addresses that the API server's certificate is for."""
    return frozenset(str(name.value) for name in pki.names_of(pki.decode_certificate(certificate.read_bytes())))


async def _supervised(name: str, work: Callable[[], Awaitable[None]]) -> None:
    delay = FIRST_RESTART
    while True:
        try:
            await work()
        except Exception:
            log.exception("the %s failed; they start again in %g s", name, delay)
        else:
            return
        await asyncio.sleep(delay)
        delay = min(delay * 2, LAST_RESTART)
