"""The numbers behind a Service's ports: for all pods at the cost of the ports and of the pods, not of both multiplied."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control.controllers.batch_delay import SECONDS_PER_ITEM
from control.controllers.context import Context
from control.controllers.endpoints import EndpointsController, EndpointSliceController, target_ports
from control.controllers.endpoints.slice_plan import plan
from control.controllers.endpoints.target_ports import TargetPorts
from control.controllers.step_counter import STEPS_PER_ITERATION
from kube.api import core_v1, meta_v1
from tests.support.clock import FakeClock, settle
from tests.support.product_world import World
from tests.support.working import working

from .makers import pod


def service(count: int) -> core_v1.Service:
    ports = [core_v1.ServicePort(name=f"p{n}", port=n + 1, target_port=f"named{n}") for n in range(count)]
    return core_v1.Service(
        metadata=meta_v1.ObjectMeta(name="s", namespace="default"), spec=core_v1.ServiceSpec(ports=ports)
    )


def serving(name: str, ip: str, **named: int) -> core_v1.Pod:
    ports = [core_v1.ContainerPort(name=port, container_port=number) for port, number in named.items()]
    return pod(name, ip=ip, containers=[core_v1.Container(name="c", ports=ports)])


async def test_pods_with_the_same_numbers_share_what_was_resolved_once(monkeypatch) -> None:
    resolved = []

    def find(named: object, port: core_v1.ServicePort) -> int | None:
        resolved.append(port.name)
        return real(named, port)  # type: ignore[arg-type]

    real = target_ports.find_port
    monkeypatch.setattr(target_ports, "find_port", find)
    desired = service(50)
    same = [serving(f"p{n}", f"10.0.0.{n}", named3=80, other=n + 1) for n in range(20)]
    apart = serving("q", "10.0.1.1", named3=81)
    ports = TargetPorts(desired)
    await ports.read([*same, apart])
    assert len(resolved) == 2 * 50
    assert len({id(ports.of(one)) for one in same}) == 1
    assert ports.of(same[0]) == (("p3", "TCP", 80, None),)
    assert ports.of(apart) == (("p3", "TCP", 81, None),)
    slices = plan(desired, [*same, apart], {}, [], ports=ports).create
    assert sorted((found.ports[0].port or 0, len(found.endpoints)) for found in slices) == [(80, 20), (81, 1)]
    assert plan(desired, [*same, apart], {}, []).create == slices
    assert len(resolved) == 4 * 50


async def test_pods_are_read_in_turns() -> None:
    desired = service(STEPS_PER_ITERATION)
    pods = [serving(f"p{n}", "10.0.0.1", named3=n + 1) for n in range(10)]
    ports = TargetPorts(desired)
    task = asyncio.create_task(ports.read(pods))
    await settle(5)
    assert not task.done() and 0 < len(ports._known) <= 5
    await task
    assert len(ports._known) == 10


@pytest.mark.parametrize("controller", [EndpointSliceController, EndpointsController])
async def test_changes_of_pods_behind_thousands_of_ports_are_taken_together(controller) -> None:
    api, made = World(), []

    def make(context: Context) -> Any:
        made.append(controller(context))
        return made[0]

    few, many = service(3), service(1000)
    few.metadata.name = "few"
    for desired in (few, many):
        desired.spec.selector = {"app": "web"}
        api.put(desired)
    api.put(serving("p", "10.0.0.1", named3=80))
    async with working(api, FakeClock(), make):
        await settle(100)
    assert (made[0]._batch_delay.wait("default/few"), made[0]._batch_delay.wait("default/s")) == (
        0,
        1001 * SECONDS_PER_ITEM,
    )
