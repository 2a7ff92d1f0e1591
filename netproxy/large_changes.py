"""Makes the rules of large Services in a thread: cluster DNS answers in the same event loop meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from netproxy.model import ServicePort

LARGE = 500
"""Ports and endpoints of a change from which on a thread makes its rules."""
T = TypeVar("T")


async def made(services: Mapping[str, tuple[ServicePort, ...]], make: Callable[[], T]) -> T:
    """Return what `make` returns for a change of Services; it must read nothing that others change meanwhile."""
    return await made_of(sum(len(ports) + count_endpoints(ports) for ports in services.values()), make)


async def made_of(size: int, make: Callable[[], T]) -> T:
    """Return what `make` returns of so many ports and endpoints."""
    return await asyncio.to_thread(make) if size > LARGE else make()


def count_endpoints(ports: Iterable[ServicePort]) -> int:
    """Return how many endpoints ports have, local ones twice."""
    return sum(len(port.endpoints) + len(port.local_endpoints) for port in ports)
