"""The journal of the agent: its decisions about a pod with their grounds, and access to them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.config import AccessSettings
from cri.fake import FakeRuntime
from tests.support.control import ApiUnderTest
from tests.support.fake_node import OPEN, ask, container, create
from tests.support.node import FastClock, NodeUnderTest, agent_node, eventually
from tests.support.ports import reserve


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> AsyncIterator[NodeUnderTest]:
    (port,) = reserve()
    async with agent_node(tmp_path, runtime, api, clock=clock, enable_server=True, port=port, access=OPEN) as node:
        yield node


async def texts(node: NodeUnderTest, name: str) -> list[str]:
    status, text = await ask(node, f"/wherry/v1/journal?namespace=default&name={name}")
    assert status == 200, text
    page = json.loads(text)
    assert {entry["actor"] for entry in page["entries"]} <= {"kubelet"} and page["completeSince"] > 0
    return [entry["text"] for entry in page["entries"]]


def like(found: list[str], start: str, end: str = "") -> bool:
    return any(text.startswith(start) and text.endswith(end) for text in found)


async def test_the_start_and_the_end_of_a_pod_are_recorded_once(node: NodeUnderTest) -> None:
    hooks = {"postStart": {"exec": {"command": ["true"]}}, "preStop": {"exec": {"command": ["true"]}}}
    mounts = [{"name": "data", "mountPath": "/data"}]
    await create(
        node,
        "web",
        container("trap 'exit 3' TERM; cat", lifecycle=hooks, volumeMounts=mounts),
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    await node.ready("web")
    started = await texts(node, "web")
    assert like(started, "pod sandbox and network were set up in ")
    assert like(started, "volumes were mounted in ", ": data")
    assert like(started, "Pulled: Container image ", "already present on machine and can be accessed by the pod")
    assert like(started, "postStart hook of container main ran ")
    assert len(started) == len(set(started))
    await node.delete("web", 5)
    await node.gone("web")
    ended = await texts(node, "web")
    assert like(ended, "Killing: Stopping container main (grace period of 5 s)")
    assert like(ended, "preStop hook of container main ran ")
    (end,) = [text for text in ended if text.startswith("container main ended")]
    assert end.endswith(" with exit code 3 (Error)")


async def test_a_restart_has_its_back_off_and_each_exit_its_code(node: NodeUnderTest) -> None:
    await create(node, "loop", container("exit 7"))

    async def restarted() -> bool:
        found = await texts(node, "loop")
        return like(found, "BackOff: Back-off restarting failed container main ", "s)") and 2 <= len(
            [text for text in found if text.endswith("with exit code 7 (Error)")]
        )

    await eventually(restarted, "the journal has no back-off")
    (delay,) = {text.rpartition("(")[2] for text in await texts(node, "loop") if text.startswith("BackOff")} or {""}
    assert delay.startswith("it is restarted in ")


async def test_failed_probes_below_the_threshold_are_no_entries(node: NodeUnderTest) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2}
    await create(node, "probed", container(readinessProbe=probe))
    await node.event("probed", "Unhealthy")
    found = await texts(node, "probed")
    assert like(found, "Started") and not like(found, "Unhealthy")


async def test_a_failed_sandbox_and_a_failed_mount_have_their_next_attempts(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    runtime.failures.fail("RunPodSandbox", "no network for you")
    await create(node, "late")
    await node.ready("late")
    found = await texts(node, "late")
    assert like(found, "FailedCreatePodSandBox: ", "no network for you (next attempt in 1s)")


async def test_a_page_without_a_name_is_refused(node: NodeUnderTest) -> None:
    assert (await ask(node, "/wherry/v1/journal?namespace=default"))[0] == 400
    assert (await ask(node, "/wherry/v1/journal?namespace=default&name=none"))[1].startswith('{"entries":[]')


async def test_nobody_reads_the_journal_who_may_not_use_the_nodes_proxy(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> None:
    (port,) = reserve()
    access = AccessSettings(anonymous=True)
    async with agent_node(tmp_path, runtime, api, clock=clock, enable_server=True, port=port, access=access) as node:
        for path in ("/wherry/v1/journal", "/wherry/v1/journal?namespace=default&name=web", "/WHERRY//v1/journal"):
            status, text = await ask(node, path)
            assert status in (400, 403) and "entries" not in text
        assert "subresource(s)=[proxy]" in (await ask(node, "/wherry/v1/journal"))[1]
