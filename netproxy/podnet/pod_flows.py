"""Deletes connection tracking entries (flows) of addresses of pods, in both directions and of every protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from netproxy import flow_table

log = logging.getLogger(__name__)

MAX_LISTS, UNDER_WAY = 10, 0.05
"""Lists of flows of one deletion, and seconds between them, in which answers that were under way arrive."""


class PodFlows:
    """Deletes flows in a thread. What fails is logged once: rules are right all the same."""

    def __init__(self) -> None:
        self._logged_errors: dict[object, str] = {}

    async def delete(self, addresses: Collection[str]) -> None:
        """Delete the flows to and from addresses."""
        await self._report(flow_table.delete_of, addresses)

    async def delete_between(self, addresses: Collection[str], others: Collection[str]) -> None:
        """Delete the flows between any of addresses and any of others.

        An answer that was under way makes a flow again, in the other direction, so flows are listed until none is found.
        """
        count = 0
        for _ in range(MAX_LISTS):
            found = await self._report(flow_table.delete_between, addresses, others)
            if not found:
                break
            count += found
            await asyncio.sleep(UNDER_WAY)
        if count:
            log.info("deleted %d flows of pods that are gone", count)

    async def _report(self, delete: Callable[..., int], *addresses: Collection[str]) -> int:
        """Return how many flows were deleted, 0 if the kernel refused it."""
        error = ""
        try:
            return await asyncio.to_thread(delete, flow_table.connect(), *addresses)
        except OSError as refused:
            error = str(refused)
            if error != self._logged_errors.get(delete):
                log.warning("flows of deleted pods stay until they time out: %s", error)
            return 0
        finally:
            self._logged_errors[delete] = error
