"""Requests that write pods' statuses: round robin over namespaces if many wait."""

from __future__ import annotations

import asyncio
from typing import Any

from agent.status.writer import DELETIONS, STATUSES, StatusWriter
from kube.api import core_v1, meta_v1
from tests.support.clock import settle


class Api:
    """An API server that responds to one request after another."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self._one = asyncio.Semaphore(1)

    async def patch(self, kind: type, name: str, namespace: str, body: dict[str, Any], **_: Any) -> core_v1.Pod:
        self.received.append(namespace)
        async with self._one:
            await asyncio.sleep(0)
        return _pod(namespace, body["metadata"]["uid"])

    async def delete(self, kind: type, name: str, namespace: str, **_: Any) -> None:
        self.received.append(namespace)
        async with self._one:
            await asyncio.sleep(0)


def _pod(namespace: str, uid: str) -> core_v1.Pod:
    return core_v1.Pod(metadata=meta_v1.ObjectMeta(name=f"pod-{uid}", namespace=namespace, uid=uid))


async def test_the_status_of_a_namespaces_only_pod_does_not_wait_for_those_of_all_pods_of_another() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    for number in range(100):
        writer.set(_pod("attacker", str(number)), core_v1.PodStatus(phase="Running"))
    writer.set(_pod("victim", "victim"), core_v1.PodStatus(phase="Running"))
    await writer.flushed("victim")
    assert api.received.count("attacker") < 2 * STATUSES + 2
    await writer.close()


async def test_the_deletion_of_a_namespaces_only_pod_does_not_wait_for_those_of_all_pods_of_another() -> None:
    api = Api()
    writer = StatusWriter(api)  # type: ignore[arg-type]
    others = [asyncio.create_task(writer.delete(_pod("attacker", str(number)))) for number in range(100)]
    await settle(1)
    await writer.delete(_pod("victim", "victim"))
    assert api.received.count("attacker") < 2 * DELETIONS + 2
    await asyncio.gather(*others)
