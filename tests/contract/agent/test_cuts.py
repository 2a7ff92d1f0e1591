"""An agent that is killed at any of its calls is followed by one that goes on, and both together do what one does."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from cri.fake import FakeRuntime
from tests.support import images
from tests.support.agent_process import AgentProcess
from tests.support.control import ApiUnderTest
from tests.support.fault_injection import FaultInjector, RuntimePassage
from tests.support.killed_agent import OTHER_IMAGE, Life, live, living
from tests.support.node import FastClock, agent_node

ALL = bool(os.environ.get("WHERRY_ALL_CUTS"))
"""At each call, one after the other, before it and after it (half an hour); else at a few."""
FIRST = int(os.environ.get("WHERRY_FIRST_CUT", "1"))
CUTS: Iterable[tuple[int, bool]] = (
    ((n, after) for n in itertools.count(FIRST) for after in (False, True)) if ALL else ((4, True), (11, False))
)
ENOUGH = 4
"""Lives in which nothing was cut any more, after which there is nothing left to cut."""


async def test_an_agent_killed_at_any_call_is_followed_by_one_that_goes_on(tmp_path: Path, api: ApiUnderTest) -> None:
    clock = FastClock(10.0)
    async with (
        FakeRuntime(tmp_path / "fake.sock", clock.sleep, clock.nanoseconds) as runtime,
        RuntimePassage(tmp_path / "runtime.sock", runtime.endpoint) as passage,
        agent_node(
            tmp_path,
            runtime,
            api,
            clock=clock,
            start=False,
            runtime_endpoint=passage.endpoint,
            static_pod_path=tmp_path / "manifests",
        ) as node,
    ):
        runtime.images.add(images.BUSYBOX_IMAGE)
        runtime.images.add(OTHER_IMAGE)
        agent = AgentProcess(tmp_path, node.config, clock)
        passage.injector = injector = FaultInjector(agent, api)
        cuts, whole = 0, 0
        async with living(Life(node, agent, injector, passage)) as life:
            for n, after in CUTS:
                cut = await live(life, n * 2 + after, n, after)
                assert not runtime.containers.sandboxes, cut
                assert not runtime.containers.containers, cut
                if ALL:
                    print(n, *cut, sep="; ", flush=True)
                cuts += len(cut)
                whole += not cut
                if whole == ENOUGH:
                    break
        assert cuts > 5
        assert "Traceback" not in agent.log.read_text()
