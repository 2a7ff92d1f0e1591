"""Condition DisruptionTarget of evicted pods, with the observed generation."""

from __future__ import annotations

import json
from typing import Any

from control.controllers.pod_disruption import disrupt
from kube import serialize
from kube.client import Client, Response
from tests.support.clock import FakeClock
from tests.support.memory_api import MemoryAPI

from .makers import pod


class World(MemoryAPI):
    """Records writes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
        self.sent.append((method, path.rpartition("/")[2], json.loads(body) if body else None))
        return Response(200, {}, serialize.encode(pod("p")))


async def test_a_pod_is_marked_before_it_is_deleted() -> None:
    world, doomed = World(), pod("p")
    doomed.metadata.generation = 3
    await disrupt(Client(world), FakeClock(), doomed, "DeletionByTaintManager", "why")
    (patch, where, marked), (delete, name, _) = world.sent
    assert (patch, where, delete, name) == ("PATCH", "status", "DELETE", "p")
    assert marked == {
        "metadata": {"uid": "uid-p"},
        "status": {
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByTaintManager",
                    "message": "why",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "observedGeneration": 3,
                }
            ]
        },
    }
