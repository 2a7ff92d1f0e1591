"""Pods on a real containerd, seen through a real API server."""

from __future__ import annotations

from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest

SLEEP = {"name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]}


async def test_a_pod_becomes_ready_and_emits_events(node: NodeUnderTest) -> None:
    await node.create("web", {"containers": [SLEEP]})
    pod = await node.ready("web")
    assert pod.status.phase == "Running"
    assert pod.status.pod_ip and pod.status.pod_ip.startswith("10.244.")
    assert [c.type for c in pod.status.conditions][:5] == [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    status = pod.status.container_statuses[0]
    assert (status.container_id or "").startswith("containerd://")
    assert status.started and status.restart_count == 0 and status.image == BUSYBOX_IMAGE
    await node.event("web", "Started")
    assert [e for e in await node.events("web") if e[0] != "Scheduled"] == [
        ("Pulled", f'Container image "{BUSYBOX_IMAGE}" already present on machine and can be accessed by the pod'),
        ("Created", "Container created"),
        ("Started", "Container started"),
    ]
    await node.delete("web")
    await node.gone("web")
