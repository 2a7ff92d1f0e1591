"""Start a machine's daemons and wait until they serve: the end of `wherry up` and of `wherry join`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from kube.api import core_v1
from kube.client import Client
from wherry import cluster, containerd, daemons, dns_service, health, published, units
from wherry.progress import step
from wherry.settings import Settings

READY_SECONDS = 90.0
UNIT_SECONDS, LOOK_SECONDS, RESTARTS = 600.0, 0.5, 3
"""Under systemd a slow machine has more time, because it prepares more. A daemon that ends again and again is seen at once."""
T = TypeVar("T")
ROLE_LABEL = "node-role.kubernetes.io/control-plane"


async def start_worker(settings: Settings) -> None:
    """Start what a worker runs and wait until its node is Ready; WherryError where it does not become so."""
    began = datetime.now(UTC)
    with step(f"start {_named(settings)}"):
        await _start(settings)
    async with cluster.connect(settings) as client:
        with step(f"wait for node {settings.node_name}"):
            await _wait_node(client, settings, began)


async def start_member(settings: Settings, client: Client) -> None:
    """Start a member of the control plane and wait until it serves and its node is Ready."""
    began = datetime.now(UTC)
    with step(f"start {_named(settings)}"):
        await _start(settings)
    with step("wait for the API server"):
        await _watching(settings, "control", cluster.wait_ready(client, settings, _seconds(settings)))
    with step(f"wait for node {settings.node_name}"):
        await (dns_service.ensure(client, settings) if settings.serves_dns else dns_service.remove(client))
        node = await _wait_node(client, settings, began)
        if ROLE_LABEL not in node.metadata.labels:
            await client.patch(core_v1.Node, settings.node_name, "", {"metadata": {"labels": {ROLE_LABEL: ""}}})
    with step("let other machines join"):
        await published.publish(client, settings)


def _named(settings: Settings) -> str:
    """Return the daemons that are started, in words."""
    dns = "cluster DNS" if settings.serves_dns else "pod network"
    words = {"control": "control plane", "netproxy": "proxy", "dns": dns}
    *most, last = [words.get(each, each) for each in daemons.roles(settings)]
    return f"{', '.join(['containerd', *most])} and {last}"


def _seconds(settings: Settings) -> float:
    return UNIT_SECONDS if units.uses_systemd(settings) else READY_SECONDS


async def _wait_node(client: Client, settings: Settings, began: datetime) -> core_v1.Node:
    """Wait until agent, proxy and cluster DNS are well, the agent has renewed its lease since `began`, and the node is Ready.

    The node's own status alone would not do: it may be what an agent before this one left.
    """
    seconds = _seconds(settings)

    async def node() -> core_v1.Node:
        await health.wait(settings, "agent", seconds)
        await health.wait_lease(client, settings, began, seconds)
        return await cluster.wait_node(client, settings, seconds)

    found = await _watching(settings, "agent", node())
    for daemon in daemons.roles(settings).keys() & {"netproxy", "dns"}:
        await _watching(settings, daemon, health.wait(settings, daemon, seconds))
    return found


async def _watching(settings: Settings, daemon: str, waiting: Coroutine[Any, Any, T]) -> T:
    """Wait for what needs a daemon; WherryError at once where it ends again and again, or containerd does."""
    before = {name: await daemons.restarts(settings, name) for name in (daemon, "containerd")}
    task = asyncio.create_task(waiting, name=f"wait for {daemon}")
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            for name, restarts in before.items():
                if await daemons.restarts(settings, name) - restarts >= RESTARTS:
                    raise await health.failure(settings, name, f"{name} ends again and again")
        return task.result()
    finally:
        task.cancel()


async def _start(settings: Settings) -> None:
    await daemons.start(settings)
    if settings.own_containerd:
        await daemons.restart_containerd(settings)
        await containerd.ensure_sandbox_image(settings, seconds=_seconds(settings) / 3)
