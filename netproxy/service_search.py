"""Finds the Services that make a write fail or time out, in as few writes as possible.

Of a refused change halves are tried, and halves of the halves that are refused. Of one that takes too long the largest Service
is tried apart from the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from netproxy.errors import WriteError, WriteTimeout
from netproxy.model import ServicePort

ATTEMPTS = 32
"""Writes to find refused Services; one of 10 000 takes 27. Those not tried by then are tried at the next check."""

Ports = tuple[ServicePort, ...]


@dataclass(slots=True)
class SearchResult:
    """Result of a search for refused Services; `untried` are those for which no attempt was left."""

    accepted: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    timed_out: dict[str, str] = field(default_factory=dict)
    """Those that took too long alone."""
    untried: list[str] = field(default_factory=list)


async def search(
    services: Mapping[str, Ports],
    write: Callable[[Sequence[str], SearchResult], Awaitable[None]],
    timed_out: WriteTimeout | None = None,
) -> SearchResult:
    """Return which Services are taken and which refused; `write` tries some in addition to those taken so far.

    `timed_out` is what came of trying all.
    """
    found, parts, attempts = SearchResult(), [list(services)], ATTEMPTS
    if timed_out is not None:
        parts = _split_by_size(list(services), services, found, timed_out)
    while parts:
        part = parts.pop()
        if not attempts:
            found.untried += part
            continue
        attempts -= 1
        try:
            await write(part, found)
        except WriteTimeout as error:
            parts += _split_by_size(part, services, found, error)
        except WriteError as error:
            if len(part) == 1:
                found.refused[part[0]] = str(error)[:500]
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
        else:
            found.accepted += part
    return found


def _split_by_size(
    part: Sequence[str], services: Mapping[str, Ports], found: SearchResult, error: WriteTimeout
) -> list[list[str]]:
    """Return the larger and the smaller Services of a part, about half of its rules each; note one that is alone."""
    if len(part) == 1:
        found.timed_out[part[0]] = str(error)[:500]
        return []
    ordered = sorted(part, key=lambda key: size_of(services[key]))
    half, sum_, count = sum(size_of(services[key]) for key in ordered) / 2, 0, 0
    for key in ordered[:-1]:
        sum_ += size_of(services[key])
        if count and sum_ > half:
            break
        count += 1
    return [ordered[count:], ordered[:count]]


def size_of(ports: Ports) -> int:
    """Return about how many rules ports take."""
    return sum(
        2 + len(port.endpoints) + len(port.local_endpoints) + len(port.external_ips) + len(port.load_balancer_ips)
        for port in ports
    )
