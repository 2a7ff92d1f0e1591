"""Controllers that are cut off in the midst of their writes, or run twice, end in the same state as ones left alone."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from control.controllers import manager
from control.scheduler import main as scheduler
from kube.api import apps_v1, batch_v1, core_v1, discovery_v1, meta_v1
from kube.client import Client
from tests.support.control import ApiUnderTest, api_server
from tests.support.failing import Failing
from tests.support.hollow import HollowNodes, eventually, running


def labels(name: str) -> dict[str, str]:
    return {"app": name}


def template(name: str, image: str = "one", **spec: Any) -> core_v1.PodTemplateSpec:
    container = core_v1.Container(name="c", image=image)
    return core_v1.PodTemplateSpec(
        metadata=meta_v1.ObjectMeta(labels=labels(name)), spec=core_v1.PodSpec(containers=[container], **spec)
    )


def meta(name: str) -> meta_v1.ObjectMeta:
    return meta_v1.ObjectMeta(name=name, namespace="default")


def selector(name: str) -> meta_v1.LabelSelector:
    return meta_v1.LabelSelector(match_labels=labels(name))


async def make(client: Client) -> None:
    await client.create(
        apps_v1.Deployment(
            metadata=meta("web"),
            spec=apps_v1.DeploymentSpec(replicas=4, selector=selector("web"), template=template("web")),
        )
    )
    ports = [core_v1.ServicePort(port=80)]
    await client.create(
        core_v1.Service(metadata=meta("web"), spec=core_v1.ServiceSpec(selector=labels("web"), ports=ports))
    )
    await client.create(
        apps_v1.StatefulSet(
            metadata=meta("db"),
            spec=apps_v1.StatefulSetSpec(
                replicas=2, service_name="db", selector=selector("db"), template=template("db")
            ),
        )
    )
    await client.create(
        apps_v1.DaemonSet(
            metadata=meta("d"), spec=apps_v1.DaemonSetSpec(selector=selector("d"), template=template("d"))
        )
    )
    await client.create(
        batch_v1.Job(
            metadata=meta("j"),
            spec=batch_v1.JobSpec(completions=3, parallelism=2, template=template("j", restart_policy="Never")),
        )
    )


async def settled(client: Client, image: str, *, alone: bool = True) -> bool:
    """Return whether everything is as it should be, and nothing is there twice.

    Two Job controllers (not `alone`) may each have made a pod before they saw the other's, and deleted one as too many
    that had just ended: then the Job's count is right, but its pods are not the completions.
    """
    pods = (await client.list(core_v1.Pod, "default")).items
    alive = [p for p in pods if p.metadata.deletion_timestamp is None]
    by_app: dict[str, list[core_v1.Pod]] = {}
    for pod in alive:
        by_app.setdefault(pod.metadata.labels["app"], []).append(pod)
    web = by_app.get("web", [])
    workers = len(by_app.pop("j", []))
    if {app: len(found) for app, found in by_app.items()} != {"web": 4, "db": 2, "d": 2}:
        return False
    if alone and workers != 3:
        return False
    if any(p.status.phase != "Running" for p in web) or {p.spec.containers[0].image for p in web} != {image}:
        return False
    job = await client.get(batch_v1.Job, "j", "default")
    if (alone and job.status.succeeded != 3) or (job.status.succeeded or 0) < 3:
        return False
    if not any(c.type == "Complete" for c in job.status.conditions):
        return False
    slices = (await client.list(discovery_v1.EndpointSlice, "default")).items
    mine = [s for s in slices if s.metadata.labels.get("kubernetes.io/service-name") == "web"]
    addresses = sorted(ip for s in mine for e in s.endpoints for ip in e.addresses)
    sets = (await client.list(apps_v1.ReplicaSet, "default")).items
    wanted = sorted(rs.spec.replicas or 0 for rs in sets)
    return len(mine) == 1 and addresses == sorted(p.status.pod_ip or "" for p in web) and wanted[-1:] == [4]


def behave(pod: core_v1.Pod) -> tuple[str, bool]:
    return ("Succeeded", False) if pod.metadata.labels["app"] == "j" else ("Running", True)


async def prepare(server: ApiUnderTest) -> tuple[Client, HollowNodes]:
    client = server.client()
    nodes = HollowNodes(client)
    nodes.behave = behave
    return client, nodes


async def roll(client: Client) -> None:
    container = [{"name": "c", "image": "two"}]
    patch = {"spec": {"template": {"spec": {"containers": container}}}}
    await client.patch(apps_v1.Deployment, "web", "default", patch, type="application/strategic-merge-patch+json")


@pytest.mark.parametrize("seed", range(3))
async def test_controllers_cut_off_between_writes_converge(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with api_server(tmp_path) as server:
        client, nodes = await prepare(server)
        async with running(scheduler.run(client), nodes.run()):
            await nodes.register("n0")
            await nodes.register("n1")
            rolled, cuts = False, 0

            async def life(writes: int) -> bool:
                """Run the controllers until they are cut off or have nothing left to do; True for the latter."""
                failing = Failing(server.client().transport, chance, writes)
                async with running(manager.run(Client(failing), manager.ControllerConfig())):
                    deadline = asyncio.get_running_loop().time() + 8
                    while asyncio.get_running_loop().time() < deadline:
                        if failing.cut.is_set():
                            return False
                        if await settled(client, "two" if rolled else "one"):
                            return True
                        await asyncio.sleep(0.05)
                    return False

            async with running(manager.run(client, manager.ControllerConfig())):
                await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            await make(client)
            for _ in range(60):
                if await life(chance.randrange(2, 25)):
                    if rolled:
                        break
                    await roll(client)
                    rolled = True
                else:
                    cuts += 1
            assert rolled and cuts >= 3
            assert await settled(client, "two")


async def test_two_of_each_at_once_do_no_harm(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        client, nodes = await prepare(server)
        twice = [manager.run(server.client(), manager.ControllerConfig()) for _ in range(2)]
        twice += [scheduler.run(server.client()) for _ in range(2)]
        async with running(nodes.run(), *twice):
            await nodes.register("n0")
            await nodes.register("n1")
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            await make(client)
            await eventually(lambda: _quiet(client, "one"))
            await roll(client)
            await eventually(lambda: _quiet(client, "two"))


async def _quiet(client: Client, image: str) -> bool:
    """Return whether all is settled, and stays so for a moment."""
    if not await settled(client, image, alone=False):
        return False
    await asyncio.sleep(0.5)
    return await settled(client, image, alone=False)
