"""Statistics of pod sandboxes: one call to the runtime for all, or one for each where one of them spoils the answer.

containerd 1.6 answers the list only if every sandbox has a parent cgroup and none ends meanwhile, and no version answers it
while the shim of one does not. A sandbox that is not answered in time is left out for a minute, and the list is not
requested, so that the statistics of others, and evictions by them, wait seconds for it and not each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from cri.client import Client
from cri.errors import CRIError, DeadlineExceededError
from cri.messages import PodSandboxStats
from kube.clock import Clock

log = logging.getLogger(__name__)
T = TypeVar("T")

LIST_SECONDS, ONE_SECONDS = 15.0, 5.0
"""Time that the runtime has for the statistics of all sandboxes, and of one."""
AGAIN_SECONDS = 60.0
"""Time for which something is not requested again that was not answered in time."""
AT_ONCE = 8


class SandboxStatistics:
    """Reads what the runtime reports, in any order; a sandbox without an answer has statistics without containers."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._list_at = 0.0
        self._silent: dict[str, float] = {}
        """Sandboxes that were not answered in time, and until when they are left out."""

    async def read(self, sandbox_ids: Sequence[str]) -> list[PodSandboxStats]:
        """Return the statistics of at least these sandboxes; those that the runtime does not give are empty, and logged."""
        now = self._clock.monotonic()
        if now >= self._list_at:
            try:
                return await _in_time(self._client.runtime.list_pod_sandbox_stats(), LIST_SECONDS)
            except DeadlineExceededError as error:
                self._list_at = self._clock.monotonic() + AGAIN_SECONDS
                log.warning("statistics of all sandboxes: %s; requesting them one by one for a minute", error)
            except CRIError:
                pass  # those of each may be answered
        self._silent = {each: self._silent[each] for each in sandbox_ids if self._silent.get(each, now) > now}
        slots = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(self._one(sandbox_id, slots) for sandbox_id in sandbox_ids))

    async def _one(self, sandbox_id: str, slots: asyncio.Semaphore) -> PodSandboxStats:
        stats = PodSandboxStats()
        stats.attributes.id = sandbox_id
        async with slots:
            if sandbox_id in self._silent:
                return stats
            try:
                return await _in_time(self._client.runtime.pod_sandbox_stats(sandbox_id), ONE_SECONDS)
            except DeadlineExceededError as error:
                self._leave_out(sandbox_id, error)
                return stats
            except CRIError:
                pass  # those of its containers may be answered
            try:
                containers = self._client.runtime.list_container_stats(sandbox_id=sandbox_id)
                stats.linux.containers.extend(await _in_time(containers, ONE_SECONDS))
            except DeadlineExceededError as error:
                self._leave_out(sandbox_id, error)
            except CRIError as error:
                log.warning("containers of sandbox %s have no statistics: %s", sandbox_id, error)
        return stats

    def _leave_out(self, sandbox_id: str, error: CRIError) -> None:
        self._silent[sandbox_id] = self._clock.monotonic() + AGAIN_SECONDS
        log.warning("sandbox %s has no statistics for a minute: %s", sandbox_id, error)


async def _in_time(call: Awaitable[T], seconds: float) -> T:
    """Await a call for some seconds; raises DeadlineExceededError after them, CRIError."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        raise DeadlineExceededError(f"no answer within {seconds:g} s", code="DEADLINE_EXCEEDED") from error
