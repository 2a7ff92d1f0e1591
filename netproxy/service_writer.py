"""Writes Services to one family's backend, and leaves out those that the kernel refuses, so that they hold up no other.

A change is one transaction, and a full comparison has the rules of all: one bad rule would be refused for ever, and with it
every later change. So where a change is refused, first everything it changes is put back as it was. If even that fails, no
Service is at fault: it is tried again later as a whole. Otherwise halves of it are tried, and halves of the halves that are
refused, until the Services are found; what is taken stays. They are tried again after a back-off, sooner where they change.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kube.clock import Clock
from netproxy.backend import Backend
from netproxy.errors import WriteError
from netproxy.model import ServicePort

log = logging.getLogger(__name__)

ATTEMPTS = 32
"""Writes to find who is refused; one of 10 000 Services takes 27. Who is not tried by then has its turn at the next look."""
FIRST_RETRY, LAST_RETRY = 10.0, 600.0
"""Seconds until a refused Service is tried again: the first time, or where it changed; and at most."""
PLAIN_STARTS = 2
"""Failed starts after which Services are left out: until all are tried, those not yet taken have no rules."""

Ports = tuple[ServicePort, ...]


@dataclass(slots=True)
class Found:
    """What a search for refused Services came to; `untried` are those for which no attempt was left."""

    taken: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)


async def search(keys: Sequence[str], write: Callable[[Sequence[str], Found], Awaitable[None]]) -> Found:
    """Return which Services are taken and which refused; `write` tries some in addition to those taken so far."""
    found, parts, attempts = Found(), [list(keys)], ATTEMPTS
    while parts:
        part = parts.pop()
        if not attempts:
            found.untried += part
            continue
        attempts -= 1
        try:
            await write(part, found)
        except WriteError as error:
            if len(part) == 1:
                found.refused[part[0]] = str(error)[:500]
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
        else:
            found.taken += part
    return found


@dataclass(slots=True)
class _Refusal:
    tried_at: float
    delay: float
    retry_at: float


class ServiceWriter:
    """One family's backend with all Services in force but those refused; each is told to `on_refused` with the reason."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        on_refused: Callable[[str, str], None] = lambda key, why: None,
        on_taken: Callable[[str], None] = lambda key: None,
    ) -> None:
        self.backend, self._clock = backend, clock
        self._on_refused, self._on_taken = on_refused, on_taken
        self.in_force: dict[str, Ports] = {}
        """Services as the backend has them."""
        self._behind: dict[str, Ports] = {}
        """The desired state of Services that are refused or not tried yet."""
        self._refused: dict[str, _Refusal] = {}
        self._failed_starts = 0

    @property
    def due(self) -> bool:
        """Whether Services are to be tried again."""
        return bool(self._due())

    def _due(self) -> dict[str, Ports]:
        now = self._clock.monotonic()
        return {key: ports for key, ports in self._behind.items() if self._retry_at(key) <= now}

    def _retry_at(self, key: str) -> float:
        refusal = self._refused.get(key)
        return refusal.retry_at if refusal else float("-inf")

    async def start(self, services: Mapping[str, Ports]) -> None:
        """Take over the kernel's state; WriteError where it cannot be, or not yet without leaving Services out."""
        try:
            await self.backend.start(services)
        except WriteError:
            self._failed_starts += 1
            if self._failed_starts <= PLAIN_STARTS:
                raise
        else:
            self._settle(services, Found(taken=list(services)))
            return

        async def write(part: Sequence[str], found: Found) -> None:
            chosen = {*found.taken, *part}
            await self.backend.start({key: ports if key in chosen else () for key, ports in services.items()})

        found = await search(list(services), write)
        await write((), found)
        self._settle(services, found)

    async def apply(self, services: Mapping[str, Ports]) -> None:
        """Bring the Services named to their new desired state; WriteError where even what was in force is refused."""
        for key, ports in services.items():
            self._behind[key] = ports
            refusal = self._refused.get(key)
            if refusal and not ports:
                self._forget(key)
            elif refusal:
                refusal.retry_at = min(refusal.retry_at, refusal.tried_at + FIRST_RETRY)
        await self.retry()

    async def retry(self) -> None:
        """Try what is behind, but for refused Services whose time has not come."""
        due = self._due()
        if not due:
            return
        try:
            await self.backend.apply(due)
        except WriteError as error:
            log.warning("IPv%d rules were refused, looking for the Service: %s", self.backend.family, str(error)[:500])
            found = await self._isolate(due)
        else:
            found = Found(taken=list(due))
        self._settle(due, found)

    async def _isolate(self, due: Mapping[str, Ports]) -> Found:
        before = {key: self.in_force.get(key, ()) for key in due}
        await self.backend.apply(before)
        back: dict[str, Ports] = {}

        async def write(part: Sequence[str], found: Found) -> None:
            """Try a part, and put back in the same change what the last attempt left."""
            tried = back | {key: due[key] for key in part}
            back.update({key: before[key] for key in part})
            await self.backend.apply(tried)
            back.clear()

        found = await search(list(due), write)
        rest: dict[str, Ports] = {**back, **dict.fromkeys(found.refused, ())}
        try:
            if rest:
                await self.backend.apply(rest)
        except WriteError:
            # Nothing is written at present: to be as before seemed to be taken, for it took no write.
            await self.backend.apply({key: before[key] for key in rest})
            raise
        return found

    def _settle(self, services: Mapping[str, Ports], found: Found) -> None:
        for key in found.taken:
            self._behind.pop(key, None)
            self._forget(key)
            self._hold(key, services[key])
        now = self._clock.monotonic()
        for key, why in found.refused.items():
            known = self._refused.get(key)
            delay = min(known.delay * 2, LAST_RETRY) if known else FIRST_RETRY
            self._refused[key] = _Refusal(now, delay, now + delay)
            self._behind[key] = services[key]
            self._hold(key, ())
            self._on_refused(key, why)
        self._behind |= {key: services[key] for key in found.untried}

    def _hold(self, key: str, ports: Ports) -> None:
        if ports:
            self.in_force[key] = ports
        else:
            self.in_force.pop(key, None)

    def _forget(self, key: str) -> None:
        if self._refused.pop(key, None):
            self._on_taken(key)
