"""Random but sensible users: they create, change, scale, roll out and delete workloads of all kinds, and drain nodes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from kube.errors import StatusError
from simulation.history import History
from simulation.world import World
from simulation.writes import Writes

NAMESPACES = ("default", "shop", "batch")
NAMES = ("web", "api", "cache")
MOST_USERS = 10
Object = dict[str, Any]


class User:
    """One user: an action, a pause, and so on. A request without an answer is not repeated, as by kubectl."""

    def __init__(
        self,
        world: World,
        rng: random.Random,
        history: History,
        pause: float,
        number: int = 0,
        dropped: Collection[int] = (),
    ) -> None:
        """`dropped` are the numbers of steps of all users, of whom this is the one with `number`, that are left out."""
        self._world, self._chances, self._pause, self._number, self._dropped = world, rng, pause, number, dropped
        self._rng = rng
        self._client = world.client()
        self._writes = Writes(self._client, history)
        self.until = float("inf")
        self.steps: list[int] = []
        """Numbers of the steps that were made."""

    async def run(self) -> None:
        """Act until the time is over."""
        actions: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self._create),
            (5, self._scale),
            (4, self._roll_out),
            (3, self._delete),
            (2, self._delete_pod),
            (2, self._namespace),
            (2, self._drain),
            (1, self._quota),
            (1, self._budget),
            (2, self._evict_all),
        ]
        weights = [weight for weight, _ in actions]
        for number in itertools.count(self._number, MOST_USERS):
            if self._world.clock.monotonic() >= self.until:
                break
            # Of its own, so that a run without some steps has the others unchanged.
            self._rng = random.Random(self._chances.random())
            action = self._rng.choices(actions, weights)[0][1]
            if number not in self._dropped:
                self.steps.append(number)
                with contextlib.suppress(StatusError):  # refused, or nobody knows
                    await action()
            await asyncio.sleep(self._chances.expovariate(1 / self._pause))

    # -- actions ------------------------------------------------------------------------------------------------------
    async def _create(self) -> None:
        kind = self._rng.choice(list(MANIFESTS))
        namespaces = await self._names("/api/v1/namespaces")
        namespace, name = self._rng.choice([n for n in NAMESPACES if n in namespaces]), self._rng.choice(NAMES)
        kinds = [kind, "poddisruptionbudgets"] if kind == "deployments" and self._rng.random() < 0.6 else [kind]
        for each in kinds:
            manifest = MANIFESTS[each](name, self._rng)
            await self._writes.send("POST", f"/{PLACES[each]}/namespaces/{namespace}/{each}", manifest)

    async def _scale(self) -> None:
        kind = self._rng.choice(("deployments", "statefulsets", "replicasets"))
        await self._patch(kind, {"spec": {"replicas": self._rng.randrange(7)}})

    async def _roll_out(self) -> None:
        kind = self._rng.choice(("deployments", "statefulsets", "daemonsets"))
        image = f"app:{self._rng.randrange(4)}"
        template = {"spec": {"containers": [{"name": "app", "image": image}]}}
        await self._patch(kind, {"spec": {"template": template}}, strategic=True)

    async def _delete(self) -> None:
        path = await self._existing(self._rng.choice(list(MANIFESTS)))
        policy = self._rng.choice(("Background", "Foreground", "Orphan", "Background"))
        if path:
            await self._writes.send(
                "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
            )

    async def _delete_pod(self) -> None:
        if path := await self._existing("pods"):
            await self._writes.send("DELETE", path, None)

    async def _namespace(self) -> None:
        name = self._rng.choice(NAMESPACES[1:])
        if name in await self._names("/api/v1/namespaces"):
            await self._writes.send("DELETE", f"/api/v1/namespaces/{name}", None)
        else:
            metadata = {"name": name}
            await self._writes.send(
                "POST", "/api/v1/namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": metadata}
            )

    async def _drain(self) -> None:
        node = self._rng.choice(self._world.nodes).name
        cordoned = self._rng.random() < 0.5
        await self._writes.send("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": cordoned or None}})
        if not cordoned:
            return
        query = {"fieldSelector": f"spec.nodeName={node}"}
        for pod in json.loads(await self._client.call("GET", "/api/v1/pods", query=query))["items"]:
            await self._evict(pod)

    async def _evict_all(self) -> None:
        """Evict all pods of a Deployment at the same time."""
        query = {"labelSelector": f"app=deployment-{self._rng.choice(NAMES)}"}
        pods = json.loads(await self._client.call("GET", "/api/v1/pods", query=query))["items"]
        await asyncio.gather(*(self._evict(pod) for pod in pods))

    async def _evict(self, pod: Object) -> None:
        meta = pod["metadata"]
        body = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": meta["name"]}}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        with contextlib.suppress(StatusError):  # the budget allows it later, or somebody else was faster
            await self._writes.send("POST", path, body)

    async def _budget(self) -> None:
        await self._patch("poddisruptionbudgets", {"spec": {"minAvailable": self._rng.randrange(3)}})

    async def _quota(self) -> None:
        path = f"/api/v1/namespaces/{self._rng.choice(NAMESPACES)}/resourcequotas"
        if self._rng.random() < 0.6:
            await self._writes.send("DELETE", f"{path}/small", None)
        else:
            hard = {"pods": str(self._rng.randrange(3, 12))}
            body = {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "small"}, "spec": {"hard": hard}}
            await self._writes.send("POST", path, body)

    # -- requests -----------------------------------------------------------------------------------------------------
    async def _names(self, path: str) -> list[str]:
        return [each["metadata"]["name"] for each in json.loads(await self._client.call("GET", path))["items"]]

    async def _existing(self, kind: str) -> str:
        """Return the path of an object of a kind, "" if there is none that is the users' own."""
        found = json.loads(await self._client.call("GET", f"/{PLACES[kind]}/{kind}"))["items"]
        own = [each["metadata"] for each in found if each["metadata"]["name"] != "kubernetes"]
        if not own:
            return ""
        meta = self._rng.choice(own)
        return f"/{PLACES[kind]}/namespaces/{meta['namespace']}/{kind}/{meta['name']}"

    async def _patch(self, kind: str, change: Object, *, strategic: bool = False) -> None:
        if path := await self._existing(kind):
            await self._writes.send("PATCH", path, change, strategic=strategic)


def _labels(name: str) -> dict[str, str]:
    return {"app": name}


def _template(name: str, rng: random.Random, **spec: Any) -> Object:
    requests = {"cpu": rng.choice(("100m", "500m", "1"))}
    container = {"name": "app", "image": f"app:{rng.randrange(4)}", "resources": {"requests": requests}}
    return {"metadata": {"labels": _labels(name)}, "spec": {"containers": [container], **spec}}


def _workload(kind: str, name: str, rng: random.Random, **spec: Any) -> Object:
    selector = {"matchLabels": _labels(f"{kind.lower()}-{name}")}
    template = _template(f"{kind.lower()}-{name}", rng)
    spec = {"selector": selector, "template": template, **spec}
    return {"kind": kind, "apiVersion": "apps/v1", "metadata": {"name": name}, "spec": spec}


def _daemon_set(name: str, rng: random.Random) -> Object:
    found = _workload("DaemonSet", name, rng)
    found["spec"]["template"]["spec"]["priorityClassName"] = "system-node-critical"
    return found


def _job(name: str, rng: random.Random) -> Object:
    completions = rng.randrange(1, 6)
    template = _template(f"job-{name}", rng, restartPolicy="Never")
    spec = {"completions": completions, "parallelism": rng.randrange(1, 4), "template": template, "backoffLimit": 3}
    return {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": name}, "spec": spec}


def _service(name: str, rng: random.Random) -> Object:
    kind = rng.choice(("ClusterIP", "NodePort"))
    spec = {"type": kind, "selector": _labels(f"deployment-{name}"), "ports": [{"port": 80}]}
    return {"kind": "Service", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}


def _budget(name: str, rng: random.Random) -> Object:
    spec = {"minAvailable": rng.randrange(3), "selector": {"matchLabels": _labels(f"deployment-{name}")}}
    return {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": name}, "spec": spec}


MANIFESTS: dict[str, Callable[[str, random.Random], Object]] = {
    "deployments": lambda name, rng: _workload("Deployment", name, rng, replicas=rng.randrange(6)),
    "statefulsets": lambda name, rng: _workload(
        "StatefulSet",
        name,
        rng,
        replicas=rng.randrange(5),
        serviceName=name,
        podManagementPolicy=rng.choice(("OrderedReady", "Parallel")),
    ),
    "daemonsets": _daemon_set,
    "replicasets": lambda name, rng: _workload("ReplicaSet", name, rng, replicas=rng.randrange(5)),
    "jobs": _job,
    "services": _service,
    "poddisruptionbudgets": _budget,
}
PLACES = {
    "deployments": "apis/apps/v1",
    "statefulsets": "apis/apps/v1",
    "daemonsets": "apis/apps/v1",
    "replicasets": "apis/apps/v1",
    "jobs": "apis/batch/v1",
    "services": "api/v1",
    "poddisruptionbudgets": "apis/policy/v1",
    "pods": "api/v1",
}
