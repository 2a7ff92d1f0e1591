"""Preemptions of which one write fails: the pod gets its room nevertheless, long before the sweep of waiting pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from control.components.embedded import SCHEDULER
from control.scheduler import main
from control.scheduler.configuration import SchedulerConfig
from control.scheduler.queue import STALE_SECONDS
from kube.api import core_v1, meta_v1, scheduling_v1
from kube.client import Client, Response, Transport
from kube.clock import SYSTEM
from kube.errors import StatusError
from kube.shared_informers import SharedInformers
from tests.support.control import api_server
from tests.support.hollow import HollowNodes, eventually, running

LOST = "cannot reach the API server: the connection was lost after the request was sent"
Fault = Callable[[str, str], bool]


class Lossy:
    """A transport that loses one write to a pod, before or after it takes effect."""

    def __init__(self, inner: Transport, fault: Fault, *, takes_effect: bool) -> None:
        self._inner, self._fault, self._takes_effect = inner, fault, takes_effect
        self.stream, self.close = inner.stream, inner.close
        self.lost = 0

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if "/pods/" in path and not self.lost and self._fault(method, path):
            self.lost += 1
            if self._takes_effect:
                await self._inner.request(method, path, **options)
            raise StatusError(503, "ServiceUnavailable", LOST)
        return await self._inner.request(method, path, **options)


def pod(name: str, priority: str | None = None) -> core_v1.Pod:
    resources = core_v1.ResourceRequirements(requests={"cpu": "800m"})
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(name=name, namespace="default"),
        spec=core_v1.PodSpec(
            priority_class_name=priority,
            termination_grace_period_seconds=1,
            containers=[core_v1.Container(name="c", image="i", resources=resources)],
        ),
    )


@pytest.mark.parametrize("takes_effect", [False, True], ids=["request lost", "response lost"])
@pytest.mark.parametrize(
    "fault",
    [
        lambda method, path: method == "PATCH" and path.endswith("/high/status"),
        lambda method, path: method == "PATCH" and path.endswith("/low/status"),
        lambda method, path: method == "DELETE",
    ],
    ids=["report", "condition of the victim", "deletion of the victim"],
)
async def test_a_preemption_survives_one_failed_write(tmp_path: Path, fault: Fault, takes_effect: bool) -> None:
    async with api_server(tmp_path) as server:
        client, nodes = server.client(), HollowNodes(server.client())
        await client.create(core_v1.ServiceAccount(metadata=meta_v1.ObjectMeta(name="default", namespace="default")))
        await client.create(scheduling_v1.PriorityClass(metadata=meta_v1.ObjectMeta(name="important"), value=1000))
        acting = server.api.client(SCHEDULER)
        lossy = Lossy(acting.transport, fault, takes_effect=takes_effect)
        shared = SharedInformers(Client(acting.transport), SYSTEM)
        scheduler = main.Scheduler(Client(lossy), shared, SchedulerConfig(), SYSTEM)

        async def node_of(name: str) -> str | None:
            return (await client.get(core_v1.Pod, name, "default")).spec.node_name

        async with running(shared.run(), scheduler.run(), nodes.run()):
            await nodes.register("n1", cpu="1")
            await client.create(pod("low"))
            await eventually(lambda: node_of("low"))
            await client.create(pod("high", "important"))
            await eventually(lambda: node_of("high"), within=STALE_SECONDS / 5)
            assert lossy.lost == 1
