"""Services that wait for ports, of which a user may make any number, with any number of ports."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from control.controllers.context import Context
from control.controllers.service_lb import ServiceLoadBalancerController
from control.controllers.service_lb.waiting import WAKE, WOKEN_AT_ONCE, WaitingServices
from kube.api import core_v1, meta_v1
from kube.informer import Informer
from kube.workqueue import WorkQueue
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


async def iterations_during(work: Coroutine[Any, Any, None]) -> int:
    """Return how many iterations of the event loop others get meanwhile."""
    iterations, working = 0, asyncio.create_task(work)
    while not working.done():
        iterations += 1
        await asyncio.sleep(0)
    await working
    return iterations


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
    assert await iterations_during(waiting.wake()) >= PORTS * SERVICES / 300
    while enqueued[-1] == WAKE:
        await waiting.wake()
    woken = [each for each in enqueued if each != WAKE]
    assert Counter(woken) == Counter(f"evil/s{number}" for number in range(SERVICES))


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


async def test_services_that_are_woken_delay_the_changes_of_others_by_a_few_reconciliations() -> None:
    order: list[str] = []
    context = Context(LaggingAPI().client(), FakeClock())
    services = context.informers.of(core_v1.Service)
    queue: WorkQueue[str] = WorkQueue()
    waiting = WaitingServices(services, queue.add)
    many = [f"evil/s{number:03}" for number in range(10 * WOKEN_AT_ONCE)]
    for key in many:
        add(services, key, 1024, 1)
        waiting.report(key, "port 1024/TCP is already used")
    waiting.freed(FREED)
    while len(queue):
        key = await queue.get()
        order.append(key)
        if key == WAKE:
            await waiting.wake()
        elif key == many[0]:
            queue.add("shop/new")
            waiting.served(key, partial=False)
            waiting.forget(many[-1])
        queue.done(key)
    assert [each for each in order if each.startswith("evil/")] == many[:-1]
    assert order.index("shop/new") <= WOKEN_AT_ONCE + 2
    assert order.count(WAKE) == 10


async def test_the_ports_of_waiting_services_are_claimed_in_small_steps_when_the_controllers_start() -> None:
    controller = ServiceLoadBalancerController(Context(LaggingAPI().client(), FakeClock()))
    for number in range(SERVICES):
        add(controller._services, f"evil/s{number:02}", 1024, PORTS)
    controller.controller.run = ended  # type: ignore[method-assign]
    iterations = await iterations_during(controller.run())
    assert iterations >= SERVICES, "the first Service has the ports, and each other one fails at the first of them"


async def ended() -> None:
    """Take the place of the loop that reconciles."""
