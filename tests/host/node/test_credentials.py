"""A real registry behind a password, a real credential plugin, and images that real containers run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.config import ImageSettings
from kube.api import core_v1
from tests.support import images
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.credential_plugin import CredentialPlugin
from tests.support.node import NodeUnderTest, agent_node, eventually
from tests.support.registry import PASSWORD, USER, Registry, machine, registry


@pytest.fixture
def private(containerd: Containerd) -> Iterator[Registry]:
    with registry(machine(containerd), 5001, private=True) as made:
        made.push(images.busybox_of(made.host, "team/tools:1"))
        yield made


@pytest.fixture
def plugin(tmp_path: Path, private: Registry) -> CredentialPlugin:
    made = CredentialPlugin(tmp_path)
    made.configure(f"{private.host}/team")
    made.answer(private.host, USER, PASSWORD)
    return made


@pytest.fixture
async def node(
    tmp_path: Path, containerd: Containerd, server: ApiUnderTest, plugin: CredentialPlugin
) -> AsyncIterator[NodeUnderTest]:
    changes = {"images": ImageSettings(credential_providers=plugin.config, credential_provider_dir=plugin.bin_dir)}
    async with agent_node(tmp_path, containerd, server, **changes) as node:
        yield node


def waits_for_its_image(pod: core_v1.Pod) -> bool:
    states = [s.state for s in pod.status.container_statuses if s.state is not None and s.state.waiting is not None]
    return any(s.waiting.reason in ("ErrImagePull", "ImagePullBackOff") for s in states if s.waiting is not None)


async def test_a_plugins_password_opens_the_registry(
    node: NodeUnderTest, plugin: CredentialPlugin, private: Registry, containerd: Containerd
) -> None:
    image = f"{private.host}/team/tools:1"
    app = {"name": "main", "image": image, "command": ["sleep", "1000"], "imagePullPolicy": "Always"}
    spec = {"automountServiceAccountToken": False, "containers": [app]}
    await node.create("opens", spec)
    pod = await node.ready("opens")
    assert pod.status.container_statuses[0].image == image
    assert [request["image"] for request in plugin.received] == [image]

    async def noted() -> bool:
        log = await asyncio.to_thread(lambda: private.requests)
        return "/v2/team/tools/manifests/" in log and f"auth.user.name={USER}" in log

    await eventually(noted, "the registry has not noted who asked")
    await node.stop()
    plugin.answer(private.host, USER, "wrong")
    await node.start()
    await node.create("refused", spec)
    refused = await node.wait("refused", waits_for_its_image)
    state = refused.status.container_statuses[0].state
    assert state is not None and state.waiting is not None and image in (state.waiting.message or "")
    for name in ("opens", "refused"):
        await node.delete(name, grace=0)
        await node.gone(name)
    await asyncio.to_thread(containerd.ctr, "images", "rm", "--sync", image)
