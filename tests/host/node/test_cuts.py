"""The tests of tests/contract/agent/test_cuts.py on a real containerd: a killed agent loses nothing."""

from __future__ import annotations

import os
from pathlib import Path

from kube.clock import SYSTEM
from tests.support.agent_process import AgentProcess
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.fault_injection import FaultInjector, RuntimePassage
from tests.support.images import BUSYBOX_IMAGE
from tests.support.killed_agent import OTHER_IMAGE, Life, live, living
from tests.support.node import agent_node

CUTS = range(1, 100) if os.environ.get("WHERRY_ALL_CUTS") else (8,)
UNTIL_TOLD = "trap 'exit 0' TERM; sleep 3600 & wait"


async def test_an_agent_killed_between_its_calls_to_containerd_is_followed_by_one_that_goes_on(
    tmp_path: Path, containerd: Containerd, server: ApiUnderTest
) -> None:
    containerd.ctr("images", "tag", BUSYBOX_IMAGE, OTHER_IMAGE, check=False)
    before = set(containerd.ctr("containers", "ls", "-q").stdout.split())
    async with (
        RuntimePassage(tmp_path / "runtime.sock", containerd.endpoint) as passage,
        agent_node(
            tmp_path,
            containerd,
            server,
            start=False,
            runtime_endpoint=passage.endpoint,
            static_pod_path=tmp_path / "manifests",
        ) as node,
    ):
        agent = AgentProcess(tmp_path, node.config, SYSTEM)
        passage.injector = injector = FaultInjector(agent, server)
        cuts = 0
        async with living(Life(node, agent, injector, passage, UNTIL_TOLD)) as life:
            for n in CUTS:
                cut = await live(life, n, n, after=bool(n % 2))
                left = set(containerd.ctr("containers", "ls", "-q").stdout.split()) - before
                assert not left, f"{cut}: {left}"
                if len(CUTS) > 1:
                    print(n, *cut, sep="; ", flush=True)
                if not cut:
                    break
                cuts += len(cut)
        assert cuts > 2
        assert "Traceback" not in agent.log.read_text()
