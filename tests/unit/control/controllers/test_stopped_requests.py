"""Controllers one of whose requests was stopped for holding the event loop too long."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control.controllers.expectations import EXPIRY_SECONDS
from control.controllers.replicaset import ReplicaSetController
from control.controllers.statefulset import StatefulSetController
from kube import serialize
from kube.api import apps_v1, core_v1, meta_v1
from kube.client import Response
from kube.step_limit import StepTooLong
from tests.support.clock import FakeClock
from tests.support.memory_api import MemoryAPI
from tests.support.working import working

from .makers import template

KINDS: dict[str, type[Any]] = {
    "pods": core_v1.Pod,
    "controllerrevisions": apps_v1.ControllerRevision,
    "statefulsets": apps_v1.StatefulSet,
    "replicasets": apps_v1.ReplicaSet,
}


class World(MemoryAPI):
    """Stores what controllers write; stops the second creation of a pod."""

    def __init__(self) -> None:
        super().__init__()
        self.creations = 0

    async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
        kind = next((part for part in path.split("/") if part in KINDS), "")
        if not kind or method == "GET":
            return await super().request(method, path, body=body, **options)
        written = serialize.convert(json.loads(body), KINDS[kind])
        if method == "POST" and kind == "pods":
            self.creations += 1
            if self.creations == 2:
                raise StepTooLong("a step held the event loop too long and was stopped")
            written.metadata.name = written.metadata.name or f"{written.metadata.generate_name}{self.creations}"
            written.metadata.uid = f"uid-{self.creations}"
        self.put(written)
        return Response(201, {}, serialize.encode(written))


SELECTOR = meta_v1.LabelSelector(match_labels={"app": "web"})


def replica_set() -> apps_v1.ReplicaSet:
    return apps_v1.ReplicaSet(
        metadata=meta_v1.ObjectMeta(name="web", namespace="default", uid="uid-web", generation=1),
        spec=apps_v1.ReplicaSetSpec(replicas=4, template=template(), selector=SELECTOR),
    )


def stateful_set() -> apps_v1.StatefulSet:
    return apps_v1.StatefulSet(
        metadata=meta_v1.ObjectMeta(name="db", namespace="default", uid="uid-db", generation=1),
        spec=apps_v1.StatefulSetSpec(
            replicas=4,
            pod_management_policy="Parallel",
            template=template(),
            selector=SELECTOR,
        ),
    )


@pytest.mark.parametrize(
    ("controller", "owner"),
    [(ReplicaSetController, replica_set()), (StatefulSetController, stateful_set())],
    ids=["ReplicaSet", "StatefulSet"],
)
async def test_the_pods_that_were_not_created_are_not_waited_for(controller: Any, owner: Any) -> None:
    api, clock = World(), FakeClock()
    api.put(owner)
    async with working(api, clock, controller):
        await clock.advance(EXPIRY_SECONDS / 4)
        assert api.creations == 5 and len(api.objects["/api/v1/pods"]) == 4
