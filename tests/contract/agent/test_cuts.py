"""The agent killed at every call that changes something, just before and just after it; the next one goes on from there.

A cut agent does nothing any more: whatever it still tries, to the runtime or the API, does not happen. No container is started
twice, the phase never goes back, and at the end nothing is left.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cri.channel import Channel
from cri.fake import FakeRuntime
from kube.api import core_v1
from kube.client import Client
from kube.informer import Informer
from tests.support.fake_node import TRAP, container, create
from tests.support.node import NodeUnderTest, eventually

STARTS = {"RunPodSandbox": 1, "CreateContainer": 2, "StartContainer": 2}
ENDS = {"StopContainer": 1, "StopPodSandbox": 1, "RemovePodSandbox": 1}
"""Which call of each is the one: the second container is the main one, after an init container."""
RANKS = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}


class Knife:
    """Cuts the agent off at the n-th call of an rpc."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, own: Client) -> None:
        self.at, self.after, self.left = "", False, 0
        self.dead, self.cut = False, asyncio.Event()
        unary, call = Channel.unary, Client.call

        async def cutting(channel: Channel, path: str, *arguments: Any) -> Any:
            self._alive()
            if path.endswith("/" + self.at):
                self.left -= 1
                if self.left == 0:
                    if self.after:
                        await unary(channel, path, *arguments)
                    self.dead = True
                    self.cut.set()
            self._alive()
            answer = await unary(channel, path, *arguments)
            self._alive()
            return answer

        async def silenced(client: Client, *arguments: Any, **options: Any) -> Any:
            if client is not own:
                self._alive()
            return await call(client, *arguments, **options)

        monkeypatch.setattr(Channel, "unary", cutting)
        monkeypatch.setattr(Client, "call", silenced)

    def _alive(self) -> None:
        if self.dead:
            raise asyncio.CancelledError

    def lay(self, rpc: str, number: int, after: bool) -> None:
        self.at, self.left, self.after = rpc, number, after
        self.cut.clear()


async def test_an_agent_killed_at_any_call_is_followed_by_one_that_goes_on(
    node: NodeUnderTest, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    knife = Knife(monkeypatch, node.client)
    phases: dict[str, list[str]] = {}
    pods: Informer[core_v1.Pod] = Informer(node.client, core_v1.Pod, "default")
    pods.subscribe(lambda c: phases.setdefault(c.new.metadata.name or "", []).append(c.new.status.phase or ""))
    watch = asyncio.create_task(pods.run())
    await pods.wait_synced()

    async def cut(rpc: str) -> None:
        async with asyncio.timeout(30):
            await knife.cut.wait()
        await node.stop()
        knife.at, knife.dead = "", False
        await node.start()

    async def nothing() -> bool:
        return not runtime.containers.sandboxes and not runtime.containers.containers

    points = [(rpc, number, after) for rpc, number in {**STARTS, **ENDS}.items() for after in (False, True)]
    for index, (rpc, number, after) in enumerate(points):
        name, begun = f"cut-{index}", len(runtime.calls)
        where = f"{'after' if after else 'before'} {rpc} {number}"
        if rpc in STARTS:
            knife.lay(rpc, number, after)
        await create(node, name, container(TRAP), initContainers=[container("exit 0", "init")])
        if rpc in STARTS:
            await cut(rpc)
        pod = await node.ready(name)
        started = [c for c in runtime.containers.containers.values() if c.status.started_at]
        names = sorted(c.config.metadata.name for c in started)
        assert names == ["init", "main"], f"{where}: started {names}"
        assert sum(s.status.state == 0 for s in runtime.containers.sandboxes.values()) == 1, where
        # One that was made and not started is made again under the next number, as upstream has it.
        assert pod.status.container_statuses[0].restart_count <= (rpc in ("CreateContainer", "StartContainer")), where
        if rpc in ENDS:
            knife.lay(rpc, number, after)
        await node.delete(name)
        if rpc in ENDS:
            await cut(rpc)
        await node.gone(name)
        await eventually(nothing, f"{where}: something is left behind")
        ranks = [RANKS[phase] for phase in phases[name]]
        assert ranks == sorted(ranks), f"{where}: {phases[name]}"
        assert len(runtime.calls) > begun
    watch.cancel()
