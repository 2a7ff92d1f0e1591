"""An agent that finds one of its own files damaged: it starts, or names the file and the remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.devices import checkpoint as devices
from agent.images.pull_record_files import file_name
from agent.kubelet_configuration import ConfigError
from agent.managers import cpu_state, memory_state
from agent.pods.resource_state import ACTUATED, ALLOCATED
from agent.shutdown import state as shutdown
from cri.fake import FakeRuntime
from tests.support.control import ApiUnderTest
from tests.support.fake_node import OPEN, ask, container, create
from tests.support.node import FastClock, NodeUnderTest, agent_node
from tests.support.ports import reserve

DAMAGES = [b'{"\xff":{}}', b'{"imageRef":"\xff","image":"\xff","startTime":"\xff"}']
CERTIFICATE = "kubelet.crt"
REFUSED = {cpu_state.FILE, memory_state.FILE, ALLOCATED, ACTUATED}
"""Files without which the agent does not start, as upstream."""


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> AsyncIterator[NodeUnderTest]:
    (port,) = reserve()
    async with agent_node(tmp_path, runtime, api, clock=clock, enable_server=True, port=port, access=OPEN) as node:
        yield node


async def written(node: NodeUnderTest, runtime: FakeRuntime) -> list[Path]:
    """Return all files that an agent leaves that ran pods, pulled an image and went through a shutdown."""
    root = node.config.root_dir
    small = {"limits": {"cpu": "100m", "memory": "32Mi"}}
    runtime.images.registry |= runtime.images.local
    await create(node, "sized", container(resources=small, imagePullPolicy="Always"))
    await node.ready("sized")
    await node.stop()
    shutdown.save(root / shutdown.FILE, "2026-01-01T00:00:00Z", None)
    (root / "image_manager" / "pulling" / file_name("r.test/other:1")).write_bytes(b"")
    devices.CheckpointFile(root / "device-plugins").save([], {})
    found = [path for path in root.rglob("*") if path.is_file() and b"PRIVATE KEY" not in path.read_bytes()]
    assert {path.name for path in found} >= {shutdown.FILE, devices.FILE, ALLOCATED, ACTUATED}
    assert {path.parent.name for path in found} >= {"pulled", "pulling"}
    return found


@pytest.mark.parametrize("damage", DAMAGES, ids=["key", "value"])
async def test_an_agent_starts_with_a_damaged_file_or_names_it(
    node: NodeUnderTest, runtime: FakeRuntime, damage: bytes
) -> None:
    for path in await written(node, runtime):
        before = path.read_bytes()
        path.write_bytes(damage)
        if path.name in {*REFUSED, CERTIFICATE}:
            with pytest.raises(ConfigError) as raised:
                await node.start()
            remedy = "remove those" if path.name == CERTIFICATE else "please drain this node and delete the"
            assert f'"{path}"' in str(raised.value) and remedy in str(raised.value)
        else:
            await node.start()
            assert (await ask(node, "/metrics"))[0] == 200
            await node.ready("sized")
            await node.stop()
        path.write_bytes(before)
