"""Compares the addresses and ports that are handed out with the stored Services, again and again.

A write whose outcome nobody knew, or a server that died between two steps, leaves an address without a Service. Upstream runs
the same loop every three minutes (pkg/registry/core/service).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from control.registry.context import SERVER, Context
from control.registry.core.service.strategy import ServiceStrategy
from control.registry.creation import Allocation
from control.registry.registry import Registry
from control.storage.store import StoreError
from kube.clock import Clock
from kube.errors import StatusError
from kube.resources import by_path

log = logging.getLogger(__name__)
SECONDS, FIRST_RETRY = 60.0, 1.0


async def run(registry: Registry, clock: Clock, repaired: Callable[[], None] = lambda: None) -> None:
    """Repair at once and then again and again until cancelled; what fails is retried. Call `repaired` after each success."""
    services = by_path("", "v1", "services")
    assert services is not None
    strategy = registry.strategy(services)
    assert isinstance(strategy, ServiceStrategy)
    delay = FIRST_RETRY
    while True:
        try:
            await strategy.allocator.repair(Allocation(registry, Context(SERVER)))
        except (StatusError, StoreError) as error:
            log.warning("the addresses of Services cannot be compared now: %s", error)
        else:
            repaired()
            delay = SECONDS
        await clock.sleep_deferrable(delay)
