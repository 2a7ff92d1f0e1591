"""Writes Services to one family's backend without those that the kernel refuses, so that they delay no other.

A change is one transaction, and a full comparison has the rules of all: one bad rule would be refused for ever, and with it
every later change. So where a change is refused, first everything it changes is reverted. If even that fails, no
Service is at fault: it is retried later as a whole. Otherwise halves of it are tried, and halves of the halves that are
refused, until the Services are found; what is taken stays. They are retried after a back-off, sooner where they change.

A change that takes too long is no refusal. The largest Service of it is tried apart from the others, and one that alone takes
too long is left out at once. It is retried by itself, later, and sooner only where it has become much smaller. Changes of
others go before, but for a minute at most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kube.clock import Clock
from netproxy.backend import Backend
from netproxy.errors import WriteError, WriteTimeout
from netproxy.service_search import Ports, SearchResult, search, size_of

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 10.0, 600.0
"""Seconds until a refused Service is retried: the first time, or where it changed; and at most."""
TIMEOUT_RETRY = 120.0
"""Seconds until a Service whose rules take too long is retried the first time: all others wait for up to a minute then."""
MAX_POSTPONED = 60.0
"""Seconds that changes of others may put off the try of a Service whose rules take too long. Beside changes one is tried in
`TIMEOUT_RETRY` seconds, for it may take half of them."""
WHOLE_STARTS = 2
"""Failed starts after which Services are left out: until all are tried, those not yet taken have no rules."""


@dataclass(slots=True)
class _Refusal:
    tried_at: float
    delay: float
    retry_at: float
    timed_out: int | None
    """The size of a Service whose rules took too long."""


class ServiceWriter:
    """One family's backend with all Services in force but those refused; `on_refused` is called with each and the reason."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        on_refused: Callable[[str, str], None] = lambda key, why: None,
        on_accepted: Callable[[str], None] = lambda key: None,
        on_timeout: Callable[[str, str], None] = lambda key, why: None,
    ) -> None:
        self.backend, self._clock = backend, clock
        self._on_refused, self._on_accepted, self._on_timeout = on_refused, on_accepted, on_timeout
        self.in_force: dict[str, Ports] = {}
        """Services as the backend has them."""
        self._pending: dict[str, Ports] = {}
        """The desired state of Services that are refused or not tried yet."""
        self._refused: dict[str, _Refusal] = {}
        self._failed_starts = 0
        self._timeout_retried_at = float("-inf")

    @property
    def retry_overdue(self) -> bool:
        """True if a Service whose rules took too long must be tried although changes of others wait."""
        latest = self._clock.monotonic() - MAX_POSTPONED
        waited = any(self._retry_at(key) <= latest for key in self._to_retry(timed_out=True))
        return waited and self._clock.monotonic() - self._timeout_retried_at >= TIMEOUT_RETRY

    @property
    def retry_due(self) -> bool:
        """True if Services are to be retried."""
        return bool(self._to_retry(timed_out=False) or self._to_retry(timed_out=True))

    def _to_retry(self, *, timed_out: bool) -> dict[str, Ports]:
        now = self._clock.monotonic()
        return {
            key: ports
            for key, ports in self._pending.items()
            if self._retry_at(key) <= now and self._timed_out(key) == timed_out
        }

    def _timed_out(self, key: str) -> bool:
        refusal = self._refused.get(key)
        return refusal is not None and refusal.timed_out is not None

    def _retry_at(self, key: str) -> float:
        refusal = self._refused.get(key)
        return refusal.retry_at if refusal else float("-inf")

    async def start(self, services: Mapping[str, Ports]) -> None:
        """Take over the kernel's state; WriteError where it cannot be, or not yet without leaving Services out."""
        try:
            await self.backend.start(services)
        except WriteError:
            self._failed_starts += 1
            if self._failed_starts <= WHOLE_STARTS:
                raise
        else:
            self._record(services, SearchResult(accepted=list(services)))
            return

        async def write(part: Sequence[str], found: SearchResult) -> None:
            chosen = {*found.accepted, *part}
            await self.backend.start({key: ports if key in chosen else () for key, ports in services.items()})

        found = await search(services, write)
        await write((), found)
        self._record(services, found)

    async def apply(self, services: Mapping[str, Ports]) -> None:
        """Bring the Services named to their new desired state; WriteError where even what was in force is refused."""
        for key, ports in services.items():
            self._pending[key] = ports
            refusal = self._refused.get(key)
            if refusal and not ports:
                self._forget(key)
            elif refusal and (refusal.timed_out is None or size_of(ports) <= refusal.timed_out // 2):
                refusal.retry_at = min(refusal.retry_at, refusal.tried_at + FIRST_RETRY)
        await self._try(self._to_retry(timed_out=False))

    async def retry(self) -> None:
        """Try pending Services but refused ones before their back-off has passed; of those that timed out only the next."""
        await self._try(self._to_retry(timed_out=False))
        timed_out = self._to_retry(timed_out=True)
        if timed_out:
            self._timeout_retried_at = self._clock.monotonic()
            key = min(timed_out, key=self._retry_at)
            await self._try({key: timed_out[key]})

    async def _try(self, retry_due: Mapping[str, Ports]) -> None:
        if not retry_due:
            return
        try:
            await self.backend.apply(retry_due)
        except WriteTimeout as error:
            log.warning("IPv%d rules take too long to write: %s", self.backend.family, str(error)[:500])
            found = await self._isolate(retry_due, error)
        except WriteError as error:
            log.warning(
                "IPv%d rules were rejected, searching for the Service: %s", self.backend.family, str(error)[:500]
            )
            found = await self._isolate(retry_due)
        else:
            found = SearchResult(accepted=list(retry_due))
        self._record(retry_due, found)

    async def _isolate(self, retry_due: Mapping[str, Ports], timed_out: WriteTimeout | None = None) -> SearchResult:
        before = {key: self.in_force.get(key, ()) for key in retry_due}
        if timed_out is None or len(retry_due) > 1:
            await self.backend.apply(before)
        back: dict[str, Ports] = {}

        async def write(part: Sequence[str], found: SearchResult) -> None:
            """Try a part, and revert in the same change what the last attempt left."""
            tried = back | {key: retry_due[key] for key in part}
            back.update({key: before[key] for key in part})
            await self.backend.apply(tried)
            back.clear()

        found = await search(retry_due, write, timed_out)
        rest: dict[str, Ports] = {**back, **dict.fromkeys((*found.refused, *found.timed_out), ())}
        try:
            if rest:
                await self.backend.apply(rest)
        except WriteError:
            for key, why in found.timed_out.items():
                self._refuse(key, retry_due[key], why, timed_out=True)
            # Nothing can be written at present: the empty change to the earlier state only seemed to succeed.
            await self.backend.apply({key: before[key] for key in rest})
            raise
        return found

    def _record(self, services: Mapping[str, Ports], found: SearchResult) -> None:
        for key in found.accepted:
            self._pending.pop(key, None)
            self._forget(key)
            self._set_in_force(key, services[key])
        for key, why in found.refused.items():
            self._refuse(key, services[key], why, timed_out=False)
        for key, why in found.timed_out.items():
            self._refuse(key, services[key], why, timed_out=True)
        for key in (*found.refused, *found.timed_out):
            self._set_in_force(key, ())
        self._pending |= {key: services[key] for key in found.untried}

    def _refuse(self, key: str, ports: Ports, why: str, *, timed_out: bool) -> None:
        now, known = self._clock.monotonic(), self._refused.get(key)
        delay = max(min(known.delay * 2, LAST_RETRY) if known else 0.0, TIMEOUT_RETRY if timed_out else FIRST_RETRY)
        self._refused[key] = _Refusal(now, delay, now + delay, size_of(ports) if timed_out else None)
        self._pending[key] = ports
        (self._on_timeout if timed_out else self._on_refused)(key, why)

    def _set_in_force(self, key: str, ports: Ports) -> None:
        if ports:
            self.in_force[key] = ports
        else:
            self.in_force.pop(key, None)

    def _forget(self, key: str) -> None:
        if self._refused.pop(key, None):
            self._on_accepted(key)
