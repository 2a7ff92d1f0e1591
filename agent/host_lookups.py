"""Resolves the host names of probes and hooks, in threads of their own.

A name server that never answers blocks the calling thread, and cancelling the wait does not end the thread. So names are not
resolved in the agent's thread pool. A pod has at most `POD` look-ups under way, its namespace `NAMESPACE` and the node `LIMIT`;
further ones wait within their caller's own timeout. Look-ups of one pod for the same name are shared.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from agent import threads
from agent.threads import Owner

POD, NAMESPACE, LIMIT = 4, 128, 512
"""Limits of concurrent look-ups: of a pod, of a namespace's pods, and of all."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a host; IPv6 ones that need it have their zone."""

    family: socket.AddressFamily
    host: str


@dataclass(frozen=True, slots=True)
class _Lookup:
    owner: Owner
    future: asyncio.Future[list[Address]]


_running: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], _Lookup]] = WeakKeyDictionary()


def is_address(host: str) -> bool:
    """Return whether a host is an address, which needs no look-up. One with a zone does."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host


async def addresses(host: str, owner: Owner) -> list[Address]:
    """Return a host's addresses in the resolver's order. Raise OSError (gaierror) or UnicodeError.

    The caller sets the time limit.
    """
    running = _running.setdefault(asyncio.get_running_loop(), {})
    key = (owner.pod, host)
    while key not in running and (ahead := _ahead(running, owner)):
        await asyncio.wait(ahead, return_when=asyncio.FIRST_COMPLETED)
    if key not in running:
        future = threads.begin(f"look-up {host}", _look_up, host, ended=lambda: running.pop(key, None))
        running[key] = _Lookup(owner, future)
    return await asyncio.shield(running[key].future)


def under_way(owner: Owner) -> int:
    """Count the look-ups of a pod that have not returned yet."""
    return sum(lookup.owner == owner for lookup in _running.get(asyncio.get_running_loop(), {}).values())


def _ahead(running: dict[tuple[str, str], _Lookup], owner: Owner) -> list[asyncio.Future[list[Address]]]:
    """Return the look-ups of which one must return before another of the owner's may begin."""
    of_namespace = [lookup for lookup in running.values() if lookup.owner.namespace == owner.namespace]
    of_pod = [lookup for lookup in of_namespace if lookup.owner.pod == owner.pod]
    for lookups, limit in ((of_pod, POD), (of_namespace, NAMESPACE), (list(running.values()), LIMIT)):
        if len(lookups) >= limit:
            return [lookup.future for lookup in lookups]
    return []


def _look_up(host: str) -> list[Address]:
    found = []
    for family, _, _, _, where in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        address = str(where[0])
        if len(where) == 4 and where[3] and "%" not in address:
            address = f"{address}%{where[3]}"
        found.append(Address(family, address))
    return found


async def connect(host: str, port: int, owner: Owner) -> asyncio.StreamWriter:
    """Connect to the first address of a host that takes it. Raise OSError of the first address, or UnicodeError."""
    hosts = [host] if is_address(host) else [address.host for address in await addresses(host, owner)]
    errors = []
    for address in hosts:
        try:
            return (await asyncio.open_connection(address, port))[1]
        except OSError as error:
            errors.append(error)
    raise errors[0] if errors else socket.gaierror(socket.EAI_NONAME, "Name or service not known")


class PodResolver(AbstractResolver):
    """Resolves names for an aiohttp session whose requests are one pod's."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return a host's addresses. Raise OSError or UnicodeError."""
        found = await addresses(host, self._owner)
        return [
            ResolveResult(hostname=host, host=one.host, port=port, family=one.family, proto=0, flags=0)
            for one in found
            if family in (socket.AF_UNSPEC, one.family)
        ]

    async def close(self) -> None:
        """Hold nothing that must be closed."""


def connector(owner: Owner, **options: Any) -> aiohttp.TCPConnector:
    """Make a connector for the requests of one pod."""
    return aiohttp.TCPConnector(resolver=PodResolver(owner), use_dns_cache=False, force_close=True, **options)
