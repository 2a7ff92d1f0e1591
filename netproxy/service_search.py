"""Searches the Services because of which a change is refused, or takes too long, in as few writes as possible.

Of a refused change halves are tried, and halves of the halves that are refused. Of one that takes too long the largest Service
is tried apart from the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from netproxy.errors import WriteError, WriteTimeout
from netproxy.model import ServicePort

ATTEMPTS = 32
"""Writes to find who is refused; one of 10 000 Services takes 27. Who is not tried by then has its turn at the next look."""

Ports = tuple[ServicePort, ...]


@dataclass(slots=True)
class Found:
    """What a search for refused Services came to; `untried` are those for which no attempt was left."""

    taken: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    late: dict[str, str] = field(default_factory=dict)
    """Those that took too long alone."""
    untried: list[str] = field(default_factory=list)


async def search(
    services: Mapping[str, Ports],
    write: Callable[[Sequence[str], Found], Awaitable[None]],
    late: WriteTimeout | None = None,
) -> Found:
    """Return which Services are taken and which refused; `write` tries some in addition to those taken so far.

    `late` is what came of trying all.
    """
    found, parts, attempts = Found(), [list(services)], ATTEMPTS
    if late is not None:
        parts = _apart(list(services), services, found, late)
    while parts:
        part = parts.pop()
        if not attempts:
            found.untried += part
            continue
        attempts -= 1
        try:
            await write(part, found)
        except WriteTimeout as error:
            parts += _apart(part, services, found, error)
        except WriteError as error:
            if len(part) == 1:
                found.refused[part[0]] = str(error)[:500]
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
        else:
            found.taken += part
    return found


def _apart(part: Sequence[str], services: Mapping[str, Ports], found: Found, error: WriteTimeout) -> list[list[str]]:
    """Return the larger and the smaller Services of a part, about half of its rules each; note one that is alone."""
    if len(part) == 1:
        found.late[part[0]] = str(error)[:500]
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
