"""Labels of images that containerd's restart monitor obeys: they start no container again and run no command."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.containerd import Containerd, start_containerd
from tests.support.control import ApiUnderTest
from tests.support.flows import until
from tests.support.images import BUSYBOX_IMAGE, Image
from tests.support.node import NodeUnderTest, agent_node

MONITORS = "".join(
    f'[plugins."io.containerd.{kind}.restart"]\n  interval = "1s"\n' for kind in ("internal.v1", "monitor.container.v1")
)


@pytest.fixture
def monitored() -> Iterator[Containerd]:
    """A containerd of somebody else's, with the restart monitor that is on by default."""
    with start_containerd(f"monitored-{os.getpid()}", extra_config=MONITORS, restart_monitor=True) as daemon:
        yield daemon


@pytest.fixture
async def node(tmp_path: Path, monitored: Containerd, server: ApiUnderTest) -> AsyncIterator[NodeUnderTest]:
    async with agent_node(tmp_path, monitored, server) as node:
        yield node


def labels(mark: Path) -> dict[str, str]:
    """Return the labels for which the monitor starts an ended container, with a program of the host that logs for it."""
    return {
        "containerd.io/restart.status": "running",
        "containerd.io/restart.policy": "always",
        "containerd.io/restart.loguri": f"binary:///usr/bin/touch?{mark}=",
    }


def restart_monitors(daemon: Containerd) -> list[str]:
    rows = [line.split() for line in daemon.ctr("plugins", "ls").stdout.splitlines()]
    return [row[0] for row in rows if len(row) > 1 and row[1] == "restart"]


def test_the_restart_monitor_is_not_loaded(containerd: Containerd, monitored: Containerd) -> None:
    assert restart_monitors(monitored) and not restart_monitors(containerd)


async def test_an_image_cannot_have_an_enabled_restart_monitor_run_a_command(
    node: NodeUnderTest, monitored: Containerd, tmp_path: Path
) -> None:
    by_image, by_pod, control = tmp_path / "by-image", tmp_path / "by-pod", tmp_path / "by-control"
    monitored.load([Image("wherry.test/labelled:1", labels=labels(by_image))])
    containers = [{"name": "main", "image": "wherry.test/labelled:1", "command": ["true"], "imagePullPolicy": "Never"}]
    own = {key: text for key, text in labels(by_pod).items() if not key.endswith("loguri")}
    await node.create("labelled", {"restartPolicy": "Never", "containers": containers}, labels=own)
    pod = await node.wait("labelled", lambda pod: pod.status.phase == "Succeeded")
    (container_id,) = ((s.container_id or "").partition("://")[2] for s in pod.status.container_statuses)

    # One that was made with the labels shows when the monitor has gone through all containers; changes are concurrent.
    more = [text for key, value in labels(control).items() for text in ("--label", f"{key}={value}")]
    monitored.ctr("containers", "create", *more, BUSYBOX_IMAGE, "control", "true")
    for _ in range(3):
        await until(control.exists)
        control.unlink()
    assert not by_image.exists()
    pods = [line.split()[0] for line in monitored.ctr("tasks", "ls").stdout.splitlines()[1:] if "RUNNING" in line]
    assert container_id not in pods
