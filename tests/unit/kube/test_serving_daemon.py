"""Descriptors and memory of a daemon, whichever it is and however it was started."""

import asyncio
import resource
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import agent.main
import control.main
import netproxy.main
from control.components import standalone
from kube.serving import daemon

Run = Callable[..., Coroutine[Any, Any, None]]


class Begun(Exception):
    pass


@pytest.mark.parametrize(
    ("run", "arguments"),
    [(control.main.run, 1), (standalone.run, 2), (agent.main.run, 1), (netproxy.main.run, 1)],
    ids=["control", "standalone", "agent", "netproxy"],
)
async def test_every_daemon_begins_with_its_limit_on_descriptors(
    monkeypatch: pytest.MonkeyPatch, run: Run, arguments: int
) -> None:
    def begin() -> None:
        raise Begun

    monkeypatch.setattr(daemon, "raise_descriptor_limit", begin)
    with pytest.raises(Begun):
        await run(*[None] * arguments)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (daemon.daemon, {"giving memory back"}),
        (daemon.node_daemon, {"giving memory back", "collecting garbage"}),
    ],
    ids=["any", "node"],
)
async def test_memory_is_given_back_for_as_long_as_a_daemon_runs(
    kind: Callable[[Run], Run], expected: set[str]
) -> None:
    def others() -> set[str]:
        return {task.get_name() for task in asyncio.all_tasks()} & {"giving memory back", "collecting garbage"}

    @kind
    async def run() -> None:
        await asyncio.sleep(0)
        assert others() == expected
        raise Begun

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with pytest.raises(Begun):
            await run()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert soft == hard
    assert not others()
