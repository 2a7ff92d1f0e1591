"""Pods of several kinds through their life, the agent killed at the n-th call of each part of it and begun anew.

One life: made (init container, sidecar, hook, volumes, token; one that succeeds, one that fails; a static pod with its
mirror), managed by an agent that has just been started on a node that the API has forgotten, changed (another image,
a debug container, a resize), and deleted. Each part must come to the same end as without a kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.volumes import mounts
from kube.api import coordination_v1, core_v1, meta_v1
from kube.client import STRATEGIC, Client
from kube.errors import StatusError
from kube.informer import Change, Informer
from tests.support.agent_process import AgentProcess
from tests.support.fake_node import TRAP, container
from tests.support.fault_injection import FaultInjector, RuntimePassage
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, is_ready

OTHER_IMAGE = "registry.example/busybox:other"
"""The same image under another name, which the runtime must have, too."""
RANKS = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}
DEADLINE = 60.0
NS = "default"

Done = Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class Seen:
    """Watchers' events of one pod, in order, each change once."""

    phases: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)


class Life:
    """One node with its pods, and what injects faults into its agent."""

    def __init__(
        self,
        node: NodeUnderTest,
        agent: AgentProcess,
        injector: FaultInjector,
        passage: RuntimePassage,
        script: str = TRAP,
    ) -> None:
        """`script`: what runs until it is stopped."""
        self.node, self.agent, self.injector, self.passage, self.script = node, agent, injector, passage, script
        self.client: Client = node.client
        self.seen: dict[str, Seen] = {}
        self.manifests = node.config.static_pod_path or Path("/nowhere")

    def note(self, change: Change[core_v1.Pod]) -> None:
        """Keep what a watch tells."""
        seen = self.seen.setdefault(change.new.metadata.name or "", Seen())
        ready = next((c.status for c in change.new.status.conditions if c.type == "Ready"), "")
        states = " ".join(f"{s.name}: {s.state}" for s in change.new.status.container_statuses)
        now = ((seen.phases, change.new.status.phase or ""), (seen.ready, ready), (seen.states, states))
        for kept, value in now:
            if change.type != "DELETED" and value and kept[-1:] != [value]:
                kept.append(value)

    # -- one part ---------------------------------------------------------------------------------------------------
    async def part(self, number: int, after: bool, act: Callable[[], Awaitable[None]], done: Done) -> str:
        """Do something with a fault injected; return where the agent was cut, "" where it was done before that."""
        self.injector.arm(number, after)
        await act()
        if await self._until(done, cut=True) and not await self.injector.disarm():
            return ""
        await self.agent.kill()
        await self.agent.start()
        await self._until(done)
        return self.injector.where

    async def _until(self, done: Done, cut: bool = False) -> bool:
        end = asyncio.get_running_loop().time() + DEADLINE
        while not (cut and self.injector.cut.is_set()):
            if await done():
                return True
            assert asyncio.get_running_loop().time() < end, f"{self.injector.where}: {await self._reported()}"
            await asyncio.sleep(0.03)
        return False

    async def _reported(self) -> str:
        pods = (await self.client.list(core_v1.Pod, NS)).items
        await self.agent.explain()
        return "\n".join(
            [repr(self.seen)] + [repr(p.status) for p in pods] + self.agent.log.read_text().splitlines()[-300:]
        )

    # -- the parts ----------------------------------------------------------------------------------------------------
    async def make(self, n: int) -> None:
        for name, containers, spec in _pods(n, self.script):
            body = {"containers": containers, **spec}
            await self.node.create(name, body)
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"static-{n}", "namespace": NS},
            "spec": {"containers": [container(self.script)], "terminationGracePeriodSeconds": 2},
        }
        self.manifests.mkdir(exist_ok=True)
        (self.manifests / ".part").write_text(json.dumps(manifest))
        (self.manifests / ".part").rename(self.manifests / f"static-{n}.json")

    async def made(self, n: int) -> bool:
        pods = await self._pods()
        static = pods.get(f"static-{n}-{self.node.config.node_name}")
        phases = [pods[f"{name}-{n}"].status.phase for name in ("good", "bad")]
        running = [pods[f"web-{n}"], *([static] if static else [])]
        return phases == ["Succeeded", "Failed"] and len(running) == 2 and all(is_ready(p) for p in running)

    async def change(self, n: int) -> None:
        name = f"web-{n}"
        await self._patch(name, "", {"spec": {"containers": [{"name": "main", "image": OTHER_IMAGE}]}})
        debug = {"name": "debug", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", self.script]}
        await self._patch(name, "ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}})
        sized = {"name": "side", "resources": {"requests": {"cpu": "20m"}}}
        await self._patch(name, "resize", {"spec": {"initContainers": [sized]}})

    async def changed(self, n: int) -> bool:
        pod = (await self._pods())[f"web-{n}"]
        main, debug = pod.status.container_statuses[0], pod.status.ephemeral_container_statuses
        side = next(s for s in pod.status.init_container_statuses if s.name == "side")
        sized = side.resources is not None and side.resources.requests == {"cpu": "20m"}
        alive = bool(debug and debug[0].state and debug[0].state.running)
        return is_ready(pod) and (main.restart_count or 0) > 0 and alive and sized

    async def restart(self) -> None:
        """Kill the agent, have the API forget the node, and start the agent."""
        await self.agent.kill()
        name = self.node.config.node_name
        await self.client.delete(core_v1.Node, name)
        with contextlib.suppress(StatusError):
            await self.client.delete(coordination_v1.Lease, name, "kube-node-lease")
        await self.agent.start()

    async def restarted(self) -> bool:
        if not self.agent.ready:
            return False
        nodes = (await self.client.list(core_v1.Node)).items
        return any(c.type == "Ready" and c.status == "True" for node in nodes for c in node.status.conditions)

    async def delete(self, n: int) -> None:
        (self.manifests / f"static-{n}.json").unlink()
        for name, _, _ in _pods(n, self.script):
            await self.node.delete(name)

    async def deleted(self) -> bool:
        return not await self._pods() and not await self.left()

    async def left(self) -> list[str]:
        """List what there still is of pods on the machine."""
        config = self.node.config
        folders: Iterable[Path] = (config.pods_dir, config.pod_logs_dir, config.container_logs_dir)
        found = [str(path) for folder in folders if folder.exists() for path in folder.iterdir()]
        # The agent's own folder is a mount, to share what is mounted below.
        return found + [point for point in mounts.mount_points(config.root_dir) if point != str(config.root_dir)]

    # -- in short -----------------------------------------------------------------------------------------------------
    async def _pods(self) -> dict[str, core_v1.Pod]:
        return {pod.metadata.name or "": pod for pod in (await self.client.list(core_v1.Pod, NS)).items}

    async def _patch(self, name: str, subresource: str, body: dict[str, Any]) -> None:
        await self.client.patch(core_v1.Pod, name, NS, body, type=STRATEGIC, subresource=subresource)


async def live(life: Life, n: int, call: int, after: bool) -> list[str]:
    """Go through life n with the agent killed at a call (by its number) of each part; return where it was killed."""
    begun, name = len(life.passage.started), life.node.config.node_name
    cut = [await life.part(call, after, lambda: life.make(n), lambda: life.made(n))]
    pods = await life._pods()
    for pod in pods.values():
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            # One that was made and not started is recreated under the next number, as upstream has it.
            assert status.restart_count <= 1, f"{cut}: {status}"
    cut.append(await life.part(call, after, lambda: life.restart(), life.restarted))
    settled = await life._pods()
    assert _containers(settled) == _containers(pods), f"{cut}: containers are others than before the restart"
    cut.append(await life.part(call, after, lambda: life.change(n), lambda: life.changed(n)))
    started = Counter(life.passage.started[begun:])
    expected = Counter({(f"web-{n}", c): 1 for c in ("init", "side", "debug")})
    expected += Counter({(f"web-{n}", "main"): 2, (f"good-{n}", "main"): 1, (f"bad-{n}", "main"): 1})
    expected[f"static-{n}-{name}", "main"] = 1
    assert started == expected, f"{cut}: started {started - expected}, not started {expected - started}"
    before = {key: list(seen.ready) for key, seen in life.seen.items()}
    cut.append(await life.part(call, after, lambda: life.delete(n), life.deleted))
    for pod_name, seen in life.seen.items():
        ranks = [RANKS[phase] for phase in seen.phases]
        assert ranks == sorted(ranks), f"{cut}: {pod_name} was {seen.phases}"
        if pod_name.startswith("static"):  # the others end or were changed, which makes them unready
            assert len(before.get(pod_name, [])) <= 2, f"{cut}: {pod_name}'s Ready was {before[pod_name]}"
    life.seen.clear()
    return [where for where in cut if where]


def _containers(pods: dict[str, core_v1.Pod]) -> dict[str, Sequence[tuple[str, int, str]]]:
    return {
        pod.metadata.uid or "": [
            (s.name, s.restart_count, s.container_id or "")
            for s in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        ]
        for pod in pods.values()
    }


def _pods(n: int, script: str) -> list[tuple[str, list[dict[str, Any]], dict[str, Any]]]:
    hook = {"postStart": {"exec": {"command": ["true"]}}, "preStop": {"exec": {"command": ["true"]}}}
    mounted = [{"name": name, "mountPath": f"/{name}"} for name in ("words", "scratch")]
    web = [container(script, lifecycle=hook, volumeMounts=mounted)]
    side = container(script, "side", restartPolicy="Always", resources={"requests": {"cpu": "10m"}})
    volumes = [{"name": "words", "configMap": {"name": "words"}}, {"name": "scratch", "emptyDir": {"medium": "Memory"}}]
    once = {"restartPolicy": "Never", "automountServiceAccountToken": False}
    return [
        (f"web-{n}", web, {"initContainers": [container("exit 0", "init"), side], "volumes": volumes}),
        (f"good-{n}", [container("exit 0")], once),
        (f"bad-{n}", [container("exit 3")], once),
    ]


@contextlib.asynccontextmanager
async def living(life: Life) -> AsyncIterator[Life]:
    """Run the agent, and watch pods meanwhile."""
    words = core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name="words", namespace=NS), data={"a": "b"})
    await life.client.create(words)
    pods: Informer[core_v1.Pod] = Informer(life.client, core_v1.Pod, NS)
    pods.subscribe(life.note)
    watch = asyncio.create_task(pods.run(), name="watch of the test")
    try:
        await pods.wait_synced()
        await life.agent.start()
        await life._until(life.restarted)
        yield life
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await life.agent.kill()
