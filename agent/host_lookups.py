"""Resolves the host names of probes and hooks, in threads of their own.

A name server that never answers blocks the calling thread, and cancelling the wait does not end the thread. So names are not
resolved in the agent's thread pool. A pod has at most `POD` look-ups under way, its namespace `NAMESPACE` and the node `LIMIT`;
further ones wait within their caller's own timeout. Look-ups of one pod for the same name are shared.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from agent import threads
from agent.threads import Owner
from kube import urls

POD, NAMESPACE, LIMIT = 4, 128, 512
"""Limits of concurrent look-ups: of a pod, of a namespace's pods, and of all."""
NEXT = 0.25
"""Seconds until the next address of a host is tried beside one that has not answered."""


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


async def dial(
    protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, owner: Owner
) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
    """Connect to whichever address of a host takes it first; one that does not at once is not waited for (RFC 8305).

    Raise OSError of the first address that failed, or UnicodeError. The caller sets the time limit.
    """
    if len(host) > urls.LONGEST_HOST:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    loop = asyncio.get_running_loop()
    hosts = [host] if is_address(host) else [address.host for address in await addresses(host, owner)]
    if len(hosts) == 1:
        return await loop.create_connection(protocol, hosts[0], port)
    errors: list[BaseException] = []
    attempts: set[asyncio.Task[tuple[asyncio.Transport, asyncio.BaseProtocol]]] = set()
    try:
        while hosts or attempts:
            if hosts:
                attempts.add(loop.create_task(loop.create_connection(protocol, hosts.pop(0), port)))
            done, _ = await asyncio.wait(attempts, timeout=NEXT if hosts else None, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                attempts.discard(attempt)
                error = attempt.exception()
                if error is None:
                    return attempt.result()
                errors.append(error)
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_unwanted)
    raise errors[0] if errors else socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def _unwanted(attempt: asyncio.Task[tuple[asyncio.Transport, asyncio.BaseProtocol]]) -> None:
    """Close a connection that was made though another one was sooner."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[0].abort()
