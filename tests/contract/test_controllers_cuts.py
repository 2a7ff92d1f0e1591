"""Controllers that are killed at a write, and started again, end where ones left alone do.

A namespace a cut, each with something for the controllers that test_controllers_faults.py does not look at: volumes and claims,
ephemeral volumes, budgets, quota, load balancers, finished Jobs, garbage, and a namespace that goes.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from control.controllers import manager
from control.scheduler import main as scheduler
from kube.api import core_v1, policy_v1
from kube.client import Client
from kube.errors import StatusError
from tests.support.control import ApiUnderTest, api_server
from tests.support.failing import Failing
from tests.support.hollow import HollowNodes, running

CUTS = itertools.count(1) if os.environ.get("WHERRY_ALL_CUTS") else (1, 4, 9, 16)
"""At which writes they are killed; at each there is, one after the other, where the environment asks for it (ten minutes)."""

CONFIG = manager.ControllerConfig(root_ca="the authority")
CLAIM = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
POD = {"containers": [{"name": "c", "image": "one"}]}


def world(ns: str) -> list[dict[str, Any]]:
    """Describe the objects of one namespace, in the order in which they are made."""

    def named(kind: str, name: str, version: str = "v1", labels: dict[str, str] | None = None, **fields: Any) -> Any:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **fields}

    template = {"metadata": {"labels": {"app": "web"}}, "spec": POD}
    job = {"metadata": {"labels": {"app": "job"}}, "spec": {**POD, "restartPolicy": "Never"}}
    ephemeral = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM | {"volumeName": f"{ns}-b"}}}}
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"}}
    volumes = [
        named("PersistentVolume", f"{ns}-{which}", spec={**volume, "persistentVolumeReclaimPolicy": "Retain"})
        for which in ("a", "b")
    ]
    return [
        named("Namespace", ns),
        named("ServiceAccount", "default"),
        *volumes,
        named("PersistentVolumeClaim", "data", spec=CLAIM | {"volumeName": f"{ns}-a"}),
        named("Pod", "keeps", labels={"app": "keeps"}, spec={**POD, "volumes": [ephemeral]}),
        named(
            "Deployment",
            "web",
            "apps/v1",
            spec={"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        ),
        named("Service", "web", spec={"type": "ClusterIP", "selector": {"app": "web"}, "ports": [{"port": 80}]}),
        named(
            "PodDisruptionBudget",
            "web",
            "policy/v1",
            spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        ),
        named("Job", "short", "batch/v1", spec={"ttlSecondsAfterFinished": 0, "template": job}),
        named("ResourceQuota", "quota", spec={"hard": {"pods": "10", "persistentvolumeclaims": "5"}}),
    ]


async def settled(client: Client, ns: str) -> bool:
    """Return whether everything in the namespace is as it should be, and nothing is there twice."""
    phases = {(await client.get(core_v1.PersistentVolume, f"{ns}-{name}")).status.phase for name in "ab"}
    claims = {c.metadata.name or "": c for c in (await client.list(core_v1.PersistentVolumeClaim, ns)).items}
    if phases != {"Bound"} or set(claims) != {"data", "keeps-scratch"}:
        return False
    if any(
        c.status.phase != "Bound" or "kubernetes.io/pvc-protection" not in c.metadata.finalizers
        for c in claims.values()
    ):
        return False
    apps = sorted(p.metadata.labels["app"] for p in (await client.list(core_v1.Pod, ns)).items)
    if apps != ["keeps", "web", "web"]:  # the Job has gone with its pod
        return False
    budget = await client.get(policy_v1.PodDisruptionBudget, "web", ns)
    if (budget.status.current_healthy, budget.status.disruptions_allowed) != (2, 1):
        return False
    used = (await client.get(core_v1.ResourceQuota, "quota", ns)).status.used
    if used != {"pods": "3", "persistentvolumeclaims": "2"}:
        return False
    endpoints = await client.get(core_v1.Endpoints, "web", ns)
    authority = await client.get(core_v1.ConfigMap, "kube-root-ca.crt", ns)
    return [len(s.addresses) for s in endpoints.subsets] == [2] and authority.data == {"ca.crt": "the authority"}


async def gone(client: Client, ns: str) -> bool:
    try:
        await client.get(core_v1.Namespace, ns)
    except StatusError as error:
        return error.code == 404
    return False


Done = Callable[[], Awaitable[bool]]


async def life(server: ApiUnderTest, chance: random.Random, writes: int, done: Done) -> bool:
    """Run the controllers until they are cut off at a write or have done their work; True for the latter."""
    failing = Failing(server.client().transport, chance, writes)
    async with running(manager.run(Client(failing), CONFIG)):
        deadline = asyncio.get_running_loop().time() + 30
        while not failing.cut.is_set():
            if await done():
                return True
            assert asyncio.get_running_loop().time() < deadline, f"not done after {writes} writes"
            await asyncio.sleep(0.02)
    return False


async def through(server: ApiUnderTest, chance: random.Random, writes: int, done: Done) -> bool:
    """Have the controllers do something, killed at one write and started again; return whether they were killed."""
    if await life(server, chance, writes, done):
        return False
    assert await life(server, chance, 10**6, done)
    return True


async def test_controllers_killed_at_any_write_go_on_where_they_were(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with api_server(tmp_path) as server:
        client = server.client()
        nodes = HollowNodes(client)
        nodes.behave = lambda pod: ("Succeeded", False) if pod.metadata.labels["app"] == "job" else ("Running", True)
        async with running(scheduler.run(client), nodes.run()):
            await nodes.register("n0", pods="1000")
            cuts = 0
            for writes in CUTS:
                ns = f"cut-{writes}"
                listing = {"apiVersion": "v1", "kind": "List", "items": world(ns)}
                await server.kubectl("apply", "-n", ns, "-f", "-", input=json.dumps(listing))
                made = await through(server, chance, writes, functools.partial(settled, client, ns))
                await server.kubectl("delete", "namespace", ns, "--wait=false")
                taken = await through(server, chance, writes, functools.partial(gone, client, ns))
                cuts += made + taken
                if not made and not taken:
                    break
            assert cuts > 6
