"""Start a machine's daemons and wait until they serve: the end of `wherry up` and of `wherry join`."""

from __future__ import annotations

from kube.api import core_v1
from kube.client import Client
from wherry import cluster, containerd, daemons, published
from wherry.progress import step
from wherry.settings import Settings

READY_SECONDS = 90.0
ROLE_LABEL = "node-role.kubernetes.io/control-plane"


async def start_worker(settings: Settings) -> None:
    """Start what a worker runs and wait until its node is Ready; WherryError where it does not become so."""
    with step("start containerd, agent and proxy"):
        await _start(settings)
    async with cluster.connect(settings) as client:
        with step(f"wait for node {settings.node_name}"):
            await cluster.wait_node(client, settings, READY_SECONDS)


async def start_member(settings: Settings, client: Client) -> None:
    """Start a member of the control plane and wait until it serves and its node is Ready."""
    with step("start containerd, control plane, agent and proxy"):
        await _start(settings)
    with step("wait for the API server"):
        await cluster.wait_ready(client, settings, READY_SECONDS)
    with step(f"wait for node {settings.node_name}"):
        await cluster.ensure_dns_service(client, settings)
        node = await cluster.wait_node(client, settings, READY_SECONDS)
        if ROLE_LABEL not in node.metadata.labels:
            await client.patch(core_v1.Node, settings.node_name, "", {"metadata": {"labels": {ROLE_LABEL: ""}}})
    with step("let other machines join"):
        await published.publish(client, settings)


async def _start(settings: Settings) -> None:
    await daemons.start(settings)
    if settings.own_containerd:
        await containerd.ensure_sandbox_image(settings)
