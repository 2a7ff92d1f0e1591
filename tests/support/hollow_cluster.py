"""A control plane whose controllers and scheduler run beside it, with hollow nodes; and small workloads for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from control.controllers import manager
from kube.api import apps_v1, core_v1, meta_v1
from kube.client import Client
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import HollowNodes, eventually, running


class Cluster:
    """A control plane in parts, with hollow nodes."""

    def __init__(self, server: ApiUnderTest, client: Client, nodes: HollowNodes) -> None:
        self.server, self.client, self.nodes = server, client, nodes

    async def kubectl(self, *arguments: str, **options: Any) -> str:
        return (await self.server.kubectl(*arguments, **options)).stdout

    async def events(self, reason: str = "") -> list[core_v1.Event]:
        found = (await self.client.list(core_v1.Event)).items
        return [event for event in found if not reason or event.reason == reason]

    async def pods(self, selector: str = "") -> list[core_v1.Pod]:
        return (await self.client.list(core_v1.Pod, "default", label_selector=selector)).items


@contextlib.asynccontextmanager
async def hollow_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Run a control plane in parts, with a folder for its data."""
    async with api_server(folder, enable_controllers=False, enable_scheduler=False) as server:
        client = server.client()
        nodes = HollowNodes(client)
        config = manager.ControllerConfig(
            root_ca=(folder / "pki" / "ca.crt").read_text(),
            signing_cert=(folder / "pki" / "ca.crt").read_text(),
            signing_key=(folder / "pki" / "ca.key").read_text(),
        )
        async with running(server.controllers(config), server.scheduler(), nodes.run()):
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            yield Cluster(server, client, nodes)


def deployment(name: str = "web", replicas: int = 3, cpu: str = "100m", **spec: Any) -> apps_v1.Deployment:
    labels = {"app": name}
    resources = core_v1.ResourceRequirements(requests={"cpu": cpu})
    container = core_v1.Container(name="c", image="nginx", resources=resources)
    return apps_v1.Deployment(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=apps_v1.DeploymentSpec(
            replicas=replicas,
            selector=meta_v1.LabelSelector(match_labels=labels),
            template=core_v1.PodTemplateSpec(
                metadata=meta_v1.ObjectMeta(labels=labels), spec=core_v1.PodSpec(containers=[container])
            ),
            **spec,
        ),
    )


def service(name: str = "web") -> core_v1.Service:
    return core_v1.Service(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=core_v1.ServiceSpec(selector={"app": name}, ports=[core_v1.ServicePort(port=80)]),
    )


async def running_pods(cluster: Cluster, number: int) -> bool:
    return len([p for p in await cluster.pods() if p.status.phase == "Running"]) == number
