"""Loops of the proxy that outlast their own errors, and tasks whose end is the process's."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kube.api import core_v1, meta_v1
from kube.cancellation import AwaitedCancelled
from kube.client import Client
from kube.informer import Informer
from netproxy import metrics
from netproxy.errors import ConfigError
from netproxy.node_controller import NodeController
from netproxy.tasks import Task, start
from tests.support.clock import FakeClock


async def of_others() -> None:
    awaited = asyncio.get_running_loop().create_future()
    awaited.cancel()
    await awaited


async def test_a_loop_that_fails_starts_again_and_the_others_run_on() -> None:
    clock, runs = FakeClock(), list[str]()

    async def fails() -> None:
        runs.append("fails")
        if len(runs) == 1:
            raise TypeError("a bug")
        await (of_others() if len(runs) == 2 else asyncio.Event().wait())

    async def beside() -> None:
        await asyncio.Event().wait()

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            start(group, [Task("verify rules", fails), Task("proxy", beside, restarts=False)], clock)

    running = asyncio.create_task(both())
    await clock.advance(10)
    assert len(runs) == 3
    text = metrics.exposition().decode()
    assert 'wherry_loop_running{loop="verify rules"} 1\n' in text
    assert 'wherry_loop_failures_total{loop="verify rules"} 2\n' in text
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()


async def test_the_end_of_what_cannot_start_anew_is_never_silent() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            start(group, [Task("proxy", of_others, restarts=False)], FakeClock())
    assert raised.group_contains(AwaitedCancelled)


async def test_a_configuration_that_cannot_be_used_ends_the_process() -> None:
    async def refuses() -> None:
        raise ConfigError("podCIDR")

    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            start(group, [Task("configure this node", refuses)], FakeClock())
    assert raised.group_contains(ConfigError)


async def test_a_node_is_configured_again_after_an_unforeseen_error() -> None:
    clock, done = FakeClock(), list[str]()

    async def step(node: core_v1.Node) -> None:
        done.append(node.metadata.name or "")
        if len(done) == 1:
            raise TypeError("a bug")

    informer = Informer(cast(Client, None), core_v1.Node)
    controller = NodeController(informer, clock, step)
    node: Any = core_v1.Node(metadata=meta_v1.ObjectMeta(name="n1", resource_version="1"))
    informer._set("n1", node)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            start(group, [Task("configure this node", controller.run)], clock)

    running = asyncio.create_task(run())
    await clock.advance(10)
    assert done == ["n1", "n1"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
