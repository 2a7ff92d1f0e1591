"""Computes the rules of large Services in a thread, so that cluster DNS answers in the same event loop meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from netproxy.model import ServicePort

LARGE = 500
"""Ports and endpoints of a change from which on a thread makes its rules."""
T = TypeVar("T")


async def compute(services: Mapping[str, tuple[ServicePort, ...]], function: Callable[[], T]) -> T:
    """Return what `function` returns for a change of Services; it must read nothing that others change meanwhile."""
    return await compute_sized(sum(len(ports) + count_endpoints(ports) for ports in services.values()), function)


async def compute_sized(size: int, function: Callable[[], T]) -> T:
    """Return what `function` returns of so many ports and endpoints."""
    return await asyncio.to_thread(function) if size > LARGE else function()


def count_endpoints(ports: Iterable[ServicePort]) -> int:
    """Return how many endpoints ports have, local ones twice."""
    return sum(len(port.endpoints) + len(port.local_endpoints) for port in ports)
