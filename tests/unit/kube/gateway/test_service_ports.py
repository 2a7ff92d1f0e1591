"""Ports of Services as backends: the cost of routes and Ingresses that name many of them, and what of it is kept."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from kube.api import core_v1
from kube.gateway import ingresses, rules
from kube.gateway.model import Backend
from kube.gateway.service_ports import MOST_PORTS, PER_STEP, PortIndexes
from tests.support import cost
from tests.support.gateway_results import convert_ingress, result
from tests.support.gateways import FakeView, backend, ingress, made, route, rule

PORTS = 20_000


def service(count: int = PORTS, name: str = "app") -> core_v1.Service:
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, count + 1)]
    return made(core_v1.Service, name, "infra", {"ports": ports})


def to_port(paths: int, **port: Any) -> Any:
    """Return an Ingress with paths to one port of a Service."""
    target = {"service": {"name": "app", "port": port}}
    found = [{"path": f"/{number}", "pathType": "Exact", "backend": target} for number in range(paths)]
    return ingress({"http": {"paths": found}})


def steps_of(kind: str, view: FakeView) -> Generator[int, None, Any]:
    match kind:
        case "number":
            return ingresses.convert_in_steps(to_port(4096, number=PORTS), view)
        case "name":
            return ingresses.convert_in_steps(to_port(4096, name=f"p{PORTS}"), view)
        case _:
            return rules.convert_in_steps(route(*[rule(*[backend(port=PORTS)] * 16)] * 16), view)


@pytest.mark.parametrize("kind", ["number", "name", "route"])
def test_the_ports_of_a_service_are_read_once_in_steps_however_many_refer_to_them(kind: str) -> None:
    steps = steps_of(kind, FakeView(service()))
    lines = []
    while True:
        with cost.Lines() as counted:
            done = next(steps, None) is None
        lines.append(counted.count)
        if done:
            break
    assert max(lines) < 10 * PER_STEP
    assert sum(lines) < 10 * PORTS + 100 * 4096


def test_a_named_port_and_a_number_are_those_of_the_first_port() -> None:
    ports = [
        {"name": "udp", "port": 53, "protocol": "UDP"},
        {"name": "dns", "port": 53, "appProtocol": "http"},
        {"name": "secure", "port": 443, "appProtocol": "https"},
    ]
    view = FakeView(made(core_v1.Service, "app", "infra", {"ports": ports}))

    def backends(**port: Any) -> list[Backend]:
        (found,) = convert_ingress(to_port(1, **port), view).routes
        return list(found.rules[0].backends)

    assert backends(name="udp") == backends(name="dns") == backends(number=53) == [Backend(1, "infra", "app", 53)]
    assert backends(name="secure") == backends(number=443) == backends(name="absent") == [Backend(1)]


def test_an_index_is_used_until_its_service_changes_and_the_oldest_of_a_namespace_are_dropped() -> None:
    indexes = PortIndexes()
    services = [service(MOST_PORTS // 4, f"s{number}") for number in range(4)]
    other = service(10, "other")

    def found(namespace: str, each: core_v1.Service) -> Any:
        return result(indexes.of(namespace, each.metadata.name or "", each))

    first, others = found("infra", services[0]), found("apps", other)
    assert found("infra", services[0]) is first
    for each in services:
        found("infra", each)
    assert found("apps", other) is others
    assert found("infra", services[0]) is not first
    indexes.forget("apps", "other")
    assert found("apps", other) is not others
    before = found("infra", services[0])
    assert found("infra", service(10, "s0")) is not before
