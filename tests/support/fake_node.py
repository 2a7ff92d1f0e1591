"""Pods on a node whose runtime is the fake and whose time runs fast, in few words."""

from __future__ import annotations

from typing import Any

import aiohttp

from agent.config import AccessSettings
from cri.fake import FakeRuntime
from kube.api import core_v1
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest

SPEED = 50.0
TRAP = "trap 'exit 0' TERM; cat"
OPEN = AccessSettings(authorization_mode="AlwaysAllow", anonymous=True)


def container(script: str = TRAP, name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script], **more}


async def create(node: NodeUnderTest, name: str, *containers: dict[str, Any], **spec: Any) -> core_v1.Pod:
    """Create a pod; where no containers are given, the one that it gets mounts all its volumes."""
    mounts = [{"name": v["name"], "mountPath": f"/{v['name']}"} for v in spec.get("volumes", ())]
    made = list(containers) or [container(volumeMounts=mounts)]
    body = {"automountServiceAccountToken": False, "containers": made, **spec}
    return await node.create(name, body)


def calls(runtime: FakeRuntime, rpc: str) -> list[Any]:
    return [request for name, request in runtime.calls if name == rpc]


def waiting(pod: core_v1.Pod) -> str:
    statuses = pod.status.container_statuses
    state = statuses[0].state if statuses else None
    return (state.waiting.reason or "") if state and state.waiting else ""


async def ask(node: NodeUnderTest, path: str, method: str = "GET") -> tuple[int, str]:
    """Send a request to the kubelet port; return the status and the text of the response."""
    url = f"https://127.0.0.1:{node.config.port}{path}"
    async with aiohttp.ClientSession() as http, http.request(method, url, ssl=False) as answer:
        return answer.status, await answer.text()
