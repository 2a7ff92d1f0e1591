"""Start a machine's daemons and wait until they serve: the end of `wherry up` and of `wherry join`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kube.api import core_v1
from kube.client import Client
from wherry import cluster, containerd, daemons, published, units
from wherry.errors import WherryError
from wherry.progress import step
from wherry.settings import Settings

READY_SECONDS = 90.0
UNIT_SECONDS, LOOK_SECONDS, RESTARTS = 600.0, 2.0, 3
"""Under systemd a slow machine has more time, because a unit that ends again and again can be seen."""
T = TypeVar("T")
ROLE_LABEL = "node-role.kubernetes.io/control-plane"


async def start_worker(settings: Settings) -> None:
    """Start what a worker runs and wait until its node is Ready; WherryError where it does not become so."""
    with step("start containerd, agent and proxy"):
        await _start(settings)
    async with cluster.connect(settings) as client:
        with step(f"wait for node {settings.node_name}"):
            await _patiently(settings, "agent", cluster.wait_node(client, settings, _seconds(settings)))


async def start_member(settings: Settings, client: Client) -> None:
    """Start a member of the control plane and wait until it serves and its node is Ready."""
    with step("start containerd, control plane, agent and proxy"):
        await _start(settings)
    with step("wait for the API server"):
        await _patiently(settings, "control", cluster.wait_ready(client, settings, _seconds(settings)))
    with step(f"wait for node {settings.node_name}"):
        await cluster.ensure_dns_service(client, settings)
        node = await _patiently(settings, "agent", cluster.wait_node(client, settings, _seconds(settings)))
        if ROLE_LABEL not in node.metadata.labels:
            await client.patch(core_v1.Node, settings.node_name, "", {"metadata": {"labels": {ROLE_LABEL: ""}}})
    with step("let other machines join"):
        await published.publish(client, settings)


def _seconds(settings: Settings) -> float:
    return UNIT_SECONDS if units.uses_systemd(settings) else READY_SECONDS


async def _patiently(settings: Settings, daemon: str, waiting: Coroutine[Any, Any, T]) -> T:
    """Wait for what needs a daemon; WherryError at once where systemd has had to start it again several times."""
    if not units.uses_systemd(settings):
        return await waiting
    before = await units.restarts(daemon)
    task = asyncio.create_task(waiting, name=f"wait for {daemon}")
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            if await units.restarts(daemon) - before >= RESTARTS:
                raise WherryError(f"{daemon} ends again and again; see {daemons.where_logged(settings, daemon)}")
        return task.result()
    finally:
        task.cancel()


async def _start(settings: Settings) -> None:
    await daemons.start(settings)
    if settings.own_containerd:
        await containerd.ensure_sandbox_image(settings, seconds=_seconds(settings) / 3)
