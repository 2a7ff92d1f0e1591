"""Services of thousands of ports and source ranges: work grows with their sum, not with their product."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kube.api import core_v1, discovery_v1
from netproxy import service_table
from netproxy.endpoints import NodeView
from netproxy.large_changes import LARGE
from netproxy.model import ServicePort, plan_service
from netproxy.service_table import ServiceTable
from tests.support.iterations import Iterations
from tests.support.services import port, service, slice_of


class CountedPorts(list[discovery_v1.EndpointPort]):
    """Ports that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[discovery_v1.EndpointPort]:
        self.reads += 1
        return super().__iter__()


def test_the_ports_of_a_service_share_its_source_ranges() -> None:
    ports = [port("a", 80), port("b", 81)]
    ranges = ["10.0.0.0/8", " 192.0.2.0/24", "fd00::/8"]
    balanced = service("web", "10.96.5.1", *ports, type="LoadBalancer", load_balancer_source_ranges=ranges)
    first, second = plan_service(balanced, [])
    assert first.source_ranges == ("10.0.0.0/8", "192.0.2.0/24")
    assert first.source_ranges is second.source_ranges


def test_the_ports_of_a_slice_are_read_once_for_all_ports_of_a_service() -> None:
    numbers = {f"p{number}": number for number in range(1, 51)}
    slice_ = slice_of("web", "10.244.1.2", ports=numbers)
    slice_.ports = counted = CountedPorts(slice_.ports)
    planned = plan_service(service("web", "10.96.5.1", *(port(*each) for each in numbers.items())), [slice_])
    assert [each.endpoints[0].port for each in planned] == list(numbers.values())
    assert counted.reads == 1


@pytest.fixture
def planned_in(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each plan that is made."""
    threads = list[int]()

    def counting(*given: Any) -> tuple[ServicePort, ...]:
        threads.append(threading.get_ident())
        return plan_service(*given)

    monkeypatch.setattr(service_table, "plan_service", counting)
    return threads


def many(count: int, **labels: str) -> tuple[core_v1.Service, discovery_v1.EndpointSlice]:
    made = service("web", "10.96.5.1", *(port(f"p{number}", number) for number in range(1, count + 1)))
    slice_ = slice_of("web", "10.244.1.2", ports={f"p{number}": number for number in range(1, count + 1)})
    made.metadata.labels, slice_.metadata.labels = labels, {**slice_.metadata.labels, **labels}
    return made, slice_


async def test_a_large_service_is_planned_in_a_thread_and_a_small_one_is_not(planned_in: list[int]) -> None:
    for count, in_loop in ((3, True), (LARGE, False)):
        table, (made, slice_) = ServiceTable(NodeView("node-1")), many(count)
        table.set_service("default/web", made)
        table.set_slice(slice_)
        assert len((await table.take_changes())["default/web"]) == count
        assert (planned_in.pop() == threading.get_ident()) is in_loop


async def test_what_is_planned_alike_is_not_planned_again(planned_in: list[int]) -> None:
    table = ServiceTable(NodeView("node-1"))
    for build in range(3):
        made, slice_ = many(LARGE, build=str(build))
        slice_.metadata.annotations = {"endpoints.kubernetes.io/last-change-trigger-time": str(build)}
        table.set_service("default/web", made)
        table.set_slice(slice_)
        assert len(await table.take_changes()) == (build == 0)
    assert len(planned_in) == 1
    changes = {
        "ports": lambda: made.spec.ports.pop(),
        "labels": lambda: made.metadata.labels.update({"service.kubernetes.io/service-proxy-name": "mine"}),
        "status": lambda: setattr(
            made, "status", service("web", "10.96.5.1", type="LoadBalancer", ingress=("192.0.2.1",)).status
        ),
        "endpoints": lambda: slice_.endpoints.pop(),
    }
    for what, change in changes.items():
        made, slice_ = many(LARGE)
        table.set_service("default/web", made)
        table.set_slice(slice_)
        await table.take_changes()
        made, slice_ = many(LARGE)
        change()
        table.set_service("default/web", made)
        table.set_slice(slice_)
        assert list(await table.take_changes()) == ["default/web"], what


async def test_a_plan_that_is_the_same_is_the_same_object() -> None:
    table = ServiceTable(NodeView("node-1"))
    found = []
    for zone in ("a", "b"):
        made, slice_ = many(3)
        table.set_service("default/web", made)
        table.set_slice(slice_)
        table.set_node(NodeView("node-1", zone))
        found.append((await table.take_changes())["default/web"])
    assert found[0] is found[1]


async def test_others_run_while_many_services_are_planned() -> None:
    table = ServiceTable(NodeView("node-1"))
    for number in range(2 * LARGE):
        table.set_service(f"default/s{number}", service(f"s{number}", f"10.96.{number >> 8}.{number & 255}"))

    with Iterations() as iterations:
        assert len(await table.take_changes()) == 2 * LARGE
    assert 1 <= iterations.number <= 4
