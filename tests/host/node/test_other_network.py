"""A real containerd whose pods get their network from another plugin: programs in two folders, and no network at first."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.config import OwnContainerd
from agent.orphans import cni
from cri.client import Client
from kube.api import core_v1
from tests.support.containerd import CNI_PLUGINS, Containerd, start_containerd
from tests.support.control import ApiUnderTest
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, agent_node, eventually
from wherry import cni_plugins
from wherry import containerd as own_containerd
from wherry.settings import Settings

MAIN = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sleep", "1000"]}


@pytest.fixture(params=["one folder", "several folders"])
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """Return a containerd whose plugins are in another network's folder, or in the package's, and that has no configuration."""
    several = request.param == "several folders"
    if several and not own_containerd.has_bin_dirs():
        pytest.skip("containerd searches several folders from 2.1 on")
    with start_containerd(f"other-network-{os.getpid()}") as daemon:
        settings = other(daemon)
        folder = settings.layout.cni_plugins
        folder.mkdir(parents=True)
        shutil.copy(Path(CNI_PLUGINS, "ptp"), folder / "site-ptp")
        if not several:
            cni_plugins.link(settings)
        paths = [str(each) for each in cni_plugins.searched(settings)]
        line = f"bin_dirs = {json.dumps(paths)}" if several else f"bin_dir = {json.dumps(paths[0])}"
        config = daemon.folder / "config.toml"
        config.write_text(config.read_text().replace(f'bin_dir = "{CNI_PLUGINS}"', line))
        (daemon.folder / "net.d/10-test.conflist").unlink()
        daemon.restart()
        yield daemon


def other(daemon: Containerd) -> Settings:
    return Settings(prefix=str(daemon.folder / "prefix"), pod_network="none")


@pytest.fixture
async def node(tmp_path: Path, containerd: Containerd, server: ApiUnderTest) -> AsyncIterator[NodeUnderTest]:
    async with agent_node(tmp_path, containerd, server, status_update_period=1.0) as node:
        yield node


async def ready(node: NodeUnderTest) -> core_v1.NodeCondition:
    found = await node.client.get(core_v1.Node, node.config.node_name)
    return next(c for c in found.status.conditions if c.type == "Ready")


def install(daemon: Containerd) -> Path:
    """Install the plugin's configuration; return its folder of addresses."""
    data = daemon.folder / "ipam"
    addresses = {"type": "host-local", "ranges": [[{"subnet": daemon.pod_cidr}]], "dataDir": str(data)}
    network = {"cniVersion": "1.0.0", "name": "site", "plugins": [{"type": "site-ptp", "ipam": addresses}]}
    target = daemon.folder / "net.d/10-site.conflist"
    target.with_suffix(".new").write_text(json.dumps(network))
    target.with_suffix(".new").rename(target)
    return data / "site"


async def test_a_node_is_ready_when_another_plugin_is_installed(node: NodeUnderTest, containerd: Containerd) -> None:
    found = await ready(node)
    assert found.status == "False" and "cni plugin not initialized" in (found.message or ""), found
    body = {"automountServiceAccountToken": False, "containers": [MAIN]}
    await node.create("host", {"hostNetwork": True, **body})
    await node.create("pod", body)
    await node.ready("host")
    assert "cni plugin not initialized" in await node.event("pod", "NetworkNotReady")

    reservations = install(containerd)

    async def is_ready() -> bool:
        return (await ready(node)).status == "True"

    await eventually(is_ready, "the node is Ready")
    pod = await node.ready("pod")
    assert (reservations / (pod.status.pod_ip or "")).is_file()

    # The agent removes what containerd forgot with the plugins of the same folders, by the results that libcni stored.
    async with Client(containerd.endpoint) as client:
        sandboxes = await client.runtime.list_pod_sandboxes()
        (sandbox,) = [each.id for each in sandboxes if each.metadata.name == "pod"]
    of = OwnContainerd(
        socket=containerd.socket,
        root=containerd.root,
        state=containerd.folder / "state",
        reservations=containerd.folder / "ipam/wherry",
        network=containerd.folder / "net.d/10-wherry.conflist",
        plugins=cni_plugins.searched(other(containerd)),
    )
    assert [path.name for path, _ in cni.results(of, sandbox) if path.name.startswith("site-")]
    await node.stop()
    await cni.delete(of, sandbox)
    assert not (reservations / (pod.status.pod_ip or "")).exists()
    assert list(cni.results(of, sandbox)) == []
