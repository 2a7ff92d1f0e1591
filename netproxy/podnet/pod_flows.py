"""Deletes connection tracking entries (flows) of addresses of pods, in both directions and of every protocol.

Where there are many addresses of this node the flows are listed once, and only those of addresses that have any are deleted:
a deletion costs a process and goes through all flows. Those of other nodes' pods, of which any number may end, cost none.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
from collections.abc import Collection, Iterable

from kube.process import CommandError, pieces, run
from netproxy import flow_table

log = logging.getLogger(__name__)

MAX_UNLISTED = 8
"""Addresses whose flows are deleted without listing all."""
CONCURRENT = 4
"""Deletions under way at once."""
TIMEOUT, LIST_TIMEOUT = 5.0, 30.0
"""Seconds that a deletion and a list may take. Pods that get the addresses wait for it."""
MAX_LISTS, UNDER_WAY = 10, 0.05
"""Lists of flows of one deletion, and seconds between them, in which answers that were under way arrive."""
_ADDRESS = re.compile(rb"\b(?:src|dst)=(\S+)")


class PodFlows:
    """Deletes flows. What fails is logged once: rules are right all the same."""

    def __init__(self) -> None:
        self._logged_errors: dict[object, str] = {}

    async def delete(self, addresses: Collection[str]) -> None:
        """Delete the flows to and from addresses by the command conntrack."""
        try:
            if len(addresses) > MAX_UNLISTED:
                addresses = await _with_flows(addresses)
            await _delete(addresses)
        except CommandError as error:
            self._failed(_delete, str(error))
        else:
            self._failed(_delete, "")

    async def delete_between(self, addresses: Collection[str], others: Collection[str]) -> None:
        """Delete the flows between any of addresses and any of others, in a thread and without a process.

        An answer that was under way makes a flow again, in the other direction, so flows are listed until none is found.
        """
        count = 0
        try:
            for _ in range(MAX_LISTS):
                found = await asyncio.to_thread(flow_table.delete_between, flow_table.connect(), addresses, others)
                if not found:
                    break
                count += found
                await asyncio.sleep(UNDER_WAY)
        except OSError as error:
            self._failed(flow_table, str(error))
        else:
            self._failed(flow_table, "")
        if count:
            log.info("deleted %d flows of pods that are gone", count)

    def _failed(self, means: object, error: str) -> None:
        if error and error != self._logged_errors.get(means):
            log.warning("flows of pods that are gone stay until they time out: %s", error)
        self._logged_errors[means] = error


async def _delete(addresses: Iterable[str]) -> None:
    # What leads to a pod is answered from its address, also where it was sent to a Service's.
    waiting = iter([(option, each) for each in addresses for option in ("--orig-src", "--reply-src")])

    async def work() -> None:
        for option, address in waiting:
            family = f"ipv{ipaddress.ip_address(address).version}"
            # Exit status 1 is the ordinary case of nothing to delete.
            done = await run(["conntrack", "-D", "-f", family, option, address], check=False, timeout=TIMEOUT)
            if done.returncode not in (0, 1):
                log.warning("conntrack -D %s %s: %s", option, address, done.stderr.strip())

    results = await asyncio.gather(*(work() for _ in range(CONCURRENT)), return_exceptions=True)
    for failed in filter(None, results):
        raise failed


async def _with_flows(addresses: Collection[str]) -> list[str]:
    """Return those of addresses that any flow has."""
    wanted, found = {each.encode() for each in addresses}, set[bytes]()
    for family in sorted({f"ipv{ipaddress.ip_address(each).version}" for each in addresses}):
        rest = b""
        async with contextlib.aclosing(pieces(["conntrack", "-L", "-f", family], timeout=LIST_TIMEOUT)) as read:
            async for piece in read:
                lines, _, rest = (rest + piece).rpartition(b"\n")
                found |= await asyncio.to_thread(lambda lines=lines: wanted & set(_ADDRESS.findall(lines)))  # type: ignore[misc]
        found |= wanted & set(_ADDRESS.findall(rest))
    return sorted(each.decode() for each in found)
