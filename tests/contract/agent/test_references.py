"""A pod that names more ConfigMaps than are watched, against a real API server over TLS, as the node's own user."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.pods.references import LARGEST, WATCHES_OF_A_POD
from kube.api import core_v1, meta_v1
from kube.connections import Connections
from tests.support.fake_node import container, create
from tests.support.node import NodeUnderTest, eventually

COUNT = WATCHES_OF_A_POD + 6


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the ConfigMaps that anybody watches, each with a connection of its own."""
    found: list[str] = []
    real = Connections.open

    async def opened(self: Connections, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        if path.endswith("/configmaps"):
            found.append(query["fieldSelector"].removeprefix("metadata.name="))
        return await real(self, path, query, headers)

    monkeypatch.setattr(Connections, "open", opened)
    return found


def config_map(number: int, text: str) -> core_v1.ConfigMap:
    return core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name=f"m{number}", namespace="default"), data={"key": text})


async def test_what_is_not_watched_is_there_and_is_brought_up_to_date(node: NodeUnderTest, watched: list[str]) -> None:
    for number in range(COUNT):
        await node.client.create(config_map(number, "old"))
    volumes = [{"name": f"v{number}", "configMap": {"name": f"m{number}"}} for number in range(COUNT)]
    await create(node, "many", volumes=volumes)
    pod = await node.ready("many")
    folder = node.config.root_dir / "pods" / (pod.metadata.uid or "") / "volumes/kubernetes.io~configmap"

    def shown() -> set[str]:
        return {(Path(folder) / f"v{number}" / "key").read_text() for number in range(COUNT)}

    assert await asyncio.to_thread(shown) == {"old"}
    assert len(set(watched)) == WATCHES_OF_A_POD
    for number in range(COUNT):
        await node.client.update(config_map(number, "new"))

    async def current() -> bool:
        return await asyncio.to_thread(shown) == {"new"}

    await eventually(current, "the files stay as they were")


async def test_a_pod_with_too_many_references_reports_it_and_the_next_one_starts(node: NodeUnderTest) -> None:
    variables = [
        {"name": f"V{n}", "valueFrom": {"configMapKeyRef": {"name": f"m{n}", "key": "key", "optional": True}}}
        for n in range(LARGEST + 1)
    ]
    await create(node, "greedy", container(env=variables))
    await create(node, "modest")
    await node.ready("modest")

    async def is_reported() -> bool:
        events = (await node.client.list(core_v1.Event, "default")).items
        return any(
            event.reason == "FailedMount" and f"names {LARGEST + 1} ConfigMaps" in (event.message or "")
            for event in events
        )

    await eventually(is_reported, "no event says what is wrong")
