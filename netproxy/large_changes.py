"""Computes the rules of large Services in a thread, so that cluster DNS answers in the same event loop meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from netproxy.model import ServicePort

LARGE = 500
"""Size of a change from which on a thread makes its rules."""
T = TypeVar("T")


Services = Mapping[str, tuple[ServicePort, ...]]


async def compute(before: Services | int, after: Services, function: Callable[[], T]) -> T:
    """Return what `function` returns for a change of Services; it must read nothing that others change meanwhile.

    `before` are these Services as they were, or their size: what goes costs as much as what comes.
    """
    old = before if isinstance(before, int) else _size(before)
    return await compute_sized(old + _size(after), function)


async def compute_sized(size: int, function: Callable[[], T]) -> T:
    """Return what `function` returns of a change of this size."""
    return await asyncio.to_thread(function) if size > LARGE else function()


def _size(services: Services) -> int:
    return sum(map(size_of, services.values()))


def size_of(ports: Iterable[ServicePort]) -> int:
    """Return about how many rules a Service's ports take: pairs of an address and an endpoint, and source ranges.

    The ranges are counted for each address of a load balancer and each port, as only the IPVS mode writes them.
    """
    return sum(
        (1 + len(port.external_ips) + len(port.load_balancer_ips))
        * max(1, len(port.endpoints) + len(port.local_endpoints))
        + len(port.source_ranges) * max(1, len(port.load_balancer_ips))
        for port in ports
    )


def count_endpoints(ports: Iterable[ServicePort]) -> int:
    """Return how many endpoints ports have, local ones twice."""
    return sum(len(port.endpoints) + len(port.local_endpoints) for port in ports)
