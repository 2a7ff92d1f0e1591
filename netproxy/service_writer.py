"""Writes Services to one family's backend, and leaves out those that the kernel refuses, so that they hold up no other.

A change is one transaction, and a full comparison has the rules of all: one bad rule would be refused for ever, and with it
every later change. So where a change is refused, first everything it changes is put back as it was. If even that fails, no
Service is at fault: it is tried again later as a whole. Otherwise halves of it are tried, and halves of the halves that are
refused, until the Services are found; what is taken stays. They are tried again after a back-off, sooner where they change.

A change that takes too long is no refusal. The largest Service of it is tried apart from the others, and one that alone takes
too long is left out at once. It is tried again by itself, later, and sooner only where it has become much smaller. Changes of
others go before, but for a minute at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kube.clock import Clock
from netproxy.backend import Backend
from netproxy.errors import WriteError, WriteTimeout
from netproxy.service_search import Found, Ports, search, size_of

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 10.0, 600.0
"""Seconds until a refused Service is tried again: the first time, or where it changed; and at most."""
LATE_RETRY = 120.0
"""Seconds until a Service whose rules take too long is tried again the first time: all others wait for up to a minute then."""
PATIENCE = 60.0
"""Seconds that changes of others may put off the try of a Service whose rules take too long. Beside changes one is tried in
`LATE_RETRY` seconds, for it may take half of them."""
PLAIN_STARTS = 2
"""Failed starts after which Services are left out: until all are tried, those not yet taken have no rules."""


@dataclass(slots=True)
class _Refusal:
    tried_at: float
    delay: float
    retry_at: float
    late: int | None
    """The size of a Service whose rules took too long."""


class ServiceWriter:
    """One family's backend with all Services in force but those refused; each is told to `on_refused` with the reason."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        on_refused: Callable[[str, str], None] = lambda key, why: None,
        on_taken: Callable[[str], None] = lambda key: None,
        on_late: Callable[[str, str], None] = lambda key, why: None,
    ) -> None:
        self.backend, self._clock = backend, clock
        self._on_refused, self._on_taken, self._on_late = on_refused, on_taken, on_late
        self.in_force: dict[str, Ports] = {}
        """Services as the backend has them."""
        self._behind: dict[str, Ports] = {}
        """The desired state of Services that are refused or not tried yet."""
        self._refused: dict[str, _Refusal] = {}
        self._failed_starts = 0
        self._tried_late_at = float("-inf")

    @property
    def overdue(self) -> bool:
        """Whether a Service whose rules took too long is to be tried though changes of others wait."""
        latest = self._clock.monotonic() - PATIENCE
        waited = any(self._retry_at(key) <= latest for key in self._due(late=True))
        return waited and self._clock.monotonic() - self._tried_late_at >= LATE_RETRY

    @property
    def due(self) -> bool:
        """Whether Services are to be tried again."""
        return bool(self._due(late=False) or self._due(late=True))

    def _due(self, *, late: bool) -> dict[str, Ports]:
        now = self._clock.monotonic()
        return {
            key: ports
            for key, ports in self._behind.items()
            if self._retry_at(key) <= now and self._is_late(key) == late
        }

    def _is_late(self, key: str) -> bool:
        refusal = self._refused.get(key)
        return refusal is not None and refusal.late is not None

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

        found = await search(services, write)
        await write((), found)
        self._settle(services, found)

    async def apply(self, services: Mapping[str, Ports]) -> None:
        """Bring the Services named to their new desired state; WriteError where even what was in force is refused."""
        for key, ports in services.items():
            self._behind[key] = ports
            refusal = self._refused.get(key)
            if refusal and not ports:
                self._forget(key)
            elif refusal and (refusal.late is None or size_of(ports) <= refusal.late // 2):
                refusal.retry_at = min(refusal.retry_at, refusal.tried_at + FIRST_RETRY)
        await self._try(self._due(late=False))

    async def retry(self) -> None:
        """Try what is behind, but for refused Services whose time has not come; of those that took too long the next."""
        await self._try(self._due(late=False))
        late = self._due(late=True)
        if late:
            self._tried_late_at = self._clock.monotonic()
            key = min(late, key=self._retry_at)
            await self._try({key: late[key]})

    async def _try(self, due: Mapping[str, Ports]) -> None:
        if not due:
            return
        try:
            await self.backend.apply(due)
        except WriteTimeout as error:
            log.warning("IPv%d rules take too long to write: %s", self.backend.family, str(error)[:500])
            found = await self._isolate(due, error)
        except WriteError as error:
            log.warning("IPv%d rules were refused, looking for the Service: %s", self.backend.family, str(error)[:500])
            found = await self._isolate(due)
        else:
            found = Found(taken=list(due))
        self._settle(due, found)

    async def _isolate(self, due: Mapping[str, Ports], late: WriteTimeout | None = None) -> Found:
        before = {key: self.in_force.get(key, ()) for key in due}
        if late is None or len(due) > 1:
            await self.backend.apply(before)
        back: dict[str, Ports] = {}

        async def write(part: Sequence[str], found: Found) -> None:
            """Try a part, and put back in the same change what the last attempt left."""
            tried = back | {key: due[key] for key in part}
            back.update({key: before[key] for key in part})
            await self.backend.apply(tried)
            back.clear()

        found = await search(due, write, late)
        rest: dict[str, Ports] = {**back, **dict.fromkeys((*found.refused, *found.late), ())}
        try:
            if rest:
                await self.backend.apply(rest)
        except WriteError:
            for key, why in found.late.items():
                self._refuse(key, due[key], why, late=True)
            # Nothing is written at present: to be as before seemed to be taken, for it took no write.
            await self.backend.apply({key: before[key] for key in rest})
            raise
        return found

    def _settle(self, services: Mapping[str, Ports], found: Found) -> None:
        for key in found.taken:
            self._behind.pop(key, None)
            self._forget(key)
            self._hold(key, services[key])
        for key, why in found.refused.items():
            self._refuse(key, services[key], why, late=False)
        for key, why in found.late.items():
            self._refuse(key, services[key], why, late=True)
        for key in (*found.refused, *found.late):
            self._hold(key, ())
        self._behind |= {key: services[key] for key in found.untried}

    def _refuse(self, key: str, ports: Ports, why: str, *, late: bool) -> None:
        now, known = self._clock.monotonic(), self._refused.get(key)
        delay = max(min(known.delay * 2, LAST_RETRY) if known else 0.0, LATE_RETRY if late else FIRST_RETRY)
        self._refused[key] = _Refusal(now, delay, now + delay, size_of(ports) if late else None)
        self._behind[key] = ports
        (self._on_late if late else self._on_refused)(key, why)

    def _hold(self, key: str, ports: Ports) -> None:
        if ports:
            self.in_force[key] = ports
        else:
            self.in_force.pop(key, None)

    def _forget(self, key: str) -> None:
        if self._refused.pop(key, None):
            self._on_taken(key)
