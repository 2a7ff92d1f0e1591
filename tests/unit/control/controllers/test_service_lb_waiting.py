"""Services that wait for ports, of which a user may make any number, with any number of ports."""

from __future__ import annotations

import asyncio
from collections import Counter

from control.controllers.context import Context
from control.controllers.service_lb.waiting import WAKE, WaitingServices
from kube.api import core_v1, meta_v1
from kube.informer import Informer
from tests.support.clock import FakeClock
from tests.support.lagging_api import LaggingAPI

PORTS, SERVICES = 300, 50
FREED = [("TCP", number) for number in range(1024, 1024 + PORTS)]


def waiting_services(enqueued: list[str]) -> tuple[Informer[core_v1.Service], WaitingServices]:
    services = Context(LaggingAPI().client(), FakeClock()).informers.of(core_v1.Service)
    return services, WaitingServices(services, enqueued.append)


def add(services: Informer[core_v1.Service], key: str, first: int, count: int) -> None:
    namespace, name = key.split("/")
    ports = [core_v1.ServicePort(name=str(port), port=port, protocol="TCP") for port in range(first, first + count)]
    metadata = meta_v1.ObjectMeta(name=name, namespace=namespace, uid=key, resource_version="1")
    services._set(key, core_v1.Service(metadata=metadata, spec=core_v1.ServiceSpec(type="LoadBalancer", ports=ports)))


async def test_freed_ports_wake_each_waiting_service_once_in_small_steps() -> None:
    enqueued = list[str]()
    services, waiting = waiting_services(enqueued)
    for number in range(SERVICES):
        add(services, f"evil/s{number}", 1024, PORTS)
        waiting.report(f"evil/s{number}", "port 1024/TCP is already used")
    add(services, "shop/other", 443, 1)
    waiting.report("shop/other", "port 443/TCP is already used")
    add(services, "shop/served", 1024, 1)
    waiting.freed(FREED)
    assert enqueued == [WAKE], "nothing is compared in the handler of an informer"
    iterations, done = 0, asyncio.Event()

    async def iterate() -> None:
        nonlocal iterations
        while not done.is_set():
            iterations += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(iterate())
    await waiting.wake()
    done.set()
    await others
    assert Counter(enqueued[1:]) == Counter(f"evil/s{number}" for number in range(SERVICES))
    assert iterations >= PORTS * SERVICES / 300


async def test_a_service_that_waits_when_its_port_is_compared_is_woken() -> None:
    """It may have been refused the port before that became free, in the same reconciliation."""
    enqueued = list[str]()
    services, waiting = waiting_services(enqueued)
    add(services, "shop/web", 1024, 1)
    waiting.freed(FREED)
    waiting.report("shop/web", "port 1024/TCP is already used")
    await waiting.wake()
    assert enqueued == [WAKE, "shop/web"]
    await waiting.wake()
    assert enqueued == [WAKE, "shop/web"], "the ports are compared once"
