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


async def test_memory_is_given_back_for_as_long_as_a_daemon_runs() -> None:
    def giving() -> bool:
        return any(task.get_name() == "giving memory back" for task in asyncio.all_tasks())

    @daemon.daemon
    async def run() -> None:
        await asyncio.sleep(0)
        assert giving()
        raise Begun

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with pytest.raises(Begun):
            await run()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert soft == hard
    assert not giving()
