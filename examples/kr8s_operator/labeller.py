"""A controller written with kr8s: nodes with a GPU get the label `gpu=yes`, and lose it with the GPU."""

from __future__ import annotations

from typing import Any

import kr8s
from kr8s.asyncio.objects import Node

RESOURCE, LABEL = "example.org/gpu", "gpu"


async def reconcile(node: Any) -> None:
    """Set or remove the label of one node."""
    has = int(node.status.get("capacity", {}).get(RESOURCE, 0)) > 0
    if has != (node.labels.get(LABEL) == "yes"):
        await node.patch({"metadata": {"labels": {LABEL: "yes" if has else None}}})


async def run(kubeconfig: str) -> None:
    """Follow all nodes until cancelled."""
    api = await kr8s.asyncio.api(kubeconfig=kubeconfig)
    async for event, node in api.watch("nodes"):
        if event != "DELETED" and isinstance(node, Node):
            await reconcile(node)
