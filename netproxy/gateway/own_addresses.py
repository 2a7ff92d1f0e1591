"""The node's own addresses, which are no endpoints: read again when the kernel reports a change, and every ten seconds.

They are those of every scope, since a connection to one leads to the node's own programs, whichever device has it. Link-local
ones, which come and go with pods, are never endpoints (netproxy/endpoints.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator

from kube.clock import Clock
from kube.ip_addresses import reached
from netproxy import local_addresses, netlink

log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
PAUSE_SECONDS = 0.2
"""Time after a read until the next one: the proxy's IPVS mode adds and removes thousands of addresses."""
_IPV4_CHANGES, _IPV6_CHANGES = 0x10, 0x100
"""RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR (rtnetlink(7)); they need no privilege."""
_MESSAGES = 1 << 16


class OwnAddresses:
    """Follows the addresses of the network namespace."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.addresses: frozenset[str] = frozenset()

    async def read(self) -> bool:
        """Read the addresses once; return whether they changed. Raises OSError."""
        found = await local_addresses.all_addresses()
        before, self.addresses = self.addresses, frozenset(each for each in found if not reached(each).is_link_local)
        return self.addresses != before

    async def run(self, changed: Callable[[], None]) -> None:
        """Call `changed` each time that they have changed, until cancelled. Raises OSError."""
        with _reports() as reported:
            while True:
                if await self.read():
                    changed()
                await self._clock.sleep(PAUSE_SECONDS)
                period = asyncio.create_task(self._clock.sleep(PERIOD_SECONDS), name="period of own addresses")
                change = asyncio.create_task(reported.wait(), name="change of own addresses")
                try:
                    await asyncio.wait((period, change), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    period.cancel()
                    change.cancel()
                reported.clear()


@contextlib.contextmanager
def _reports() -> Iterator[asyncio.Event]:
    """Have the kernel report changes of addresses; yield an event that each report sets."""
    reported, loop = asyncio.Event(), asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        try:
            reports = stack.enter_context(netlink.connect(netlink.ROUTE))
            reports.setblocking(False)
            reports.bind((0, _IPV4_CHANGES | _IPV6_CHANGES))
        except OSError as error:
            log.warning("changes of the node's addresses are seen every %g s: %s", PERIOD_SECONDS, error)
        else:
            loop.add_reader(reports, _receive, reports, reported)
            stack.callback(loop.remove_reader, reports)
        yield reported


def _receive(reports: socket.socket, reported: asyncio.Event) -> None:
    """Take one report; what it says is read anew, also if the kernel had no room for some (ENOBUFS)."""
    with contextlib.suppress(OSError):
        reports.recv(_MESSAGES)
    reported.set()
