"""Leader election on a coordination.k8s.io Lease: at most one holder acts, save for a moment around a lost connection.

A candidate takes a lease whose holder has not renewed it for the lease's duration, as seen by the candidate's own clock
(clocks of different machines are never compared). Numbers as upstream's: 15 s lease, renewed within 10 s, tried every 2 s.

A leader that was stopped for a while and wakes, or whose machine was suspended, would act on what it last saw before it learns
that another one has its lease: `Fenced` refuses the writes of one that has not renewed in time. So the leader's time continues
while its machine is suspended; the candidate's, who waits for the lease to run out, does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kube import serialize
from kube.api import coordination_v1, meta_v1
from kube.client import Client, Response, Transport
from kube.clock import SYSTEM, Clock, format_micro_time
from kube.counters import Gauge
from kube.errors import StatusError
from kube.loops import Loops

log = logging.getLogger(__name__)

MASTER = Gauge("leader_election_master_status", "Whether this process leads.", "name")
LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 15, 10, 2


class LeaderElector:
    """Run `lead` while holding the lease `namespace/name` as `identity`; begin again when it is lost."""

    def __init__(
        self,
        client: Client,
        name: str,
        identity: str,
        *,
        namespace: str = "kube-system",
        clock: Clock = SYSTEM,
        alone: bool = False,
    ) -> None:
        self._client, self._name, self._namespace = client, name, namespace
        self._alone = alone
        """True if there can be no other candidate."""
        self.identity = identity
        self._clock = clock
        self._seen: tuple[str, float] = ("", float("-inf"))
        self._lease: coordination_v1.Lease | None = None
        self._renewed = float("-inf")

    @property
    def in_time(self) -> bool:
        """True while the lease is held and was renewed recently enough that it cannot have expired."""
        return self._lease is not None and self._clock.boottime() - self._renewed < RENEW_SECONDS

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign and lead until cancelled; the lease is released on the way out."""
        try:
            while True:
                while not await self._try():
                    await self._clock.sleep(RETRY_SECONDS)
                log.info("%s: became leader", self.identity)
                MASTER.set(self._name, value=1)
                work = asyncio.ensure_future(lead())
                try:
                    await self._renew_until_lost(work)
                finally:
                    MASTER.set(self._name, value=0)
                    work.cancel()
                    await asyncio.gather(work, return_exceptions=True)
        finally:
            await asyncio.shield(self._release())

    async def keep(self) -> None:
        """Write the lease and renew it until cancelled; released on the way out."""
        try:
            while True:
                await self._try()
                if self._lease is not None:
                    await self._clock.sleep_deferrable(RENEW_SECONDS)
                else:
                    await self._clock.sleep(RETRY_SECONDS)
        finally:
            await asyncio.shield(self._release())

    async def _renew_until_lost(self, work: asyncio.Future[None]) -> None:
        while (left := RENEW_SECONDS - (self._clock.boottime() - self._renewed)) > 0:
            await self._either(self._clock.sleep(RETRY_SECONDS), work)
            if work.done():
                work.result()
                return
            # A server that does not answer must not keep us leading past the time that we have.
            attempt = asyncio.ensure_future(self._try())
            await self._either(self._clock.sleep(left), work, attempt)
            attempt.cancel()
        log.warning("%s: lost the lease %s/%s", self.identity, self._namespace, self._name)
        self._lease = None

    async def _either(self, pause: Coroutine[Any, Any, None], *others: asyncio.Future[Any]) -> None:
        """Wait until one of them is over; the pause ends with that."""
        waiting = asyncio.ensure_future(pause)
        try:
            await asyncio.wait({waiting, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    async def _try(self) -> bool:
        """Take or renew the lease; True while it is ours."""
        now, requested_at = format_micro_time(self._clock.now()), self._clock.boottime()
        try:
            try:
                lease = await self._client.get(coordination_v1.Lease, self._name, self._namespace)
            except StatusError as error:
                if not error.not_found:
                    raise
                self._lease = await self._client.create(
                    coordination_v1.Lease(
                        metadata=meta_v1.ObjectMeta(name=self._name, namespace=self._namespace),
                        spec=coordination_v1.LeaseSpec(
                            holder_identity=self.identity,
                            lease_duration_seconds=LEASE_SECONDS,
                            acquire_time=now,
                            renew_time=now,
                            lease_transitions=0,
                        ),
                    )
                )
                self._renewed = requested_at
                return True
            spec = lease.spec
            record = f"{spec.holder_identity} {spec.renew_time}"
            if record != self._seen[0]:
                self._seen = (record, self._clock.monotonic())
            ours = spec.holder_identity == self.identity
            seen = self._clock.monotonic() - self._seen[1]
            expired = self._alone or seen > (spec.lease_duration_seconds or LEASE_SECONDS)
            if spec.holder_identity and not ours and not expired:
                return False
            lease = serialize.copy(lease)
            if not ours:
                lease.spec.acquire_time = now
                lease.spec.lease_transitions = (spec.lease_transitions or 0) + 1
            lease.spec.holder_identity = self.identity
            lease.spec.lease_duration_seconds = LEASE_SECONDS
            lease.spec.renew_time = now
            self._lease = await self._client.update(lease)
            self._renewed = requested_at
            return True
        except StatusError as error:
            log.info("%s: lease %s: %s", self.identity, self._name, error)
            return False

    async def _release(self) -> None:
        if self._lease is None:
            return
        lease = serialize.copy(self._lease)
        lease.spec.holder_identity = ""
        lease.spec.lease_duration_seconds = 1
        try:
            await self._client.update(lease)
        except StatusError as error:
            log.debug("%s: releasing the lease: %s", self.identity, error)


async def hold(
    client: Client, name: str, identity: str, lead: Callable[[], Awaitable[None]], clock: Clock = SYSTEM
) -> None:
    """Run `lead` as the only candidate there can be, and keep the lease `kube-system/name` for those who look at it.

    Whoever held it before is gone: nobody waits for its end, and nothing waits for the lease to be written.
    """
    elector = LeaderElector(client, name, identity, clock=clock, alone=True)
    renewing = asyncio.ensure_future(Loops(clock).run(f"lease {name}", elector.keep))
    MASTER.set(name, value=1)
    try:
        await lead()
    finally:
        MASTER.set(name, value=0)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


class Fenced:
    """A transport for the work of a leader: what it writes is sent only while its lease is surely its own."""

    def __init__(self, transport: Transport, elector: LeaderElector) -> None:
        self._transport, self._elector = transport, elector
        self.stream, self.close = transport.stream, transport.close

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if method != "GET" and not self._elector.in_time:
            raise StatusError(503, "ServiceUnavailable", f"{self._elector.identity} leads no more")
        return await self._transport.request(method, path, **options)
