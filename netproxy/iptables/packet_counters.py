"""Reads the packet counters of two rules, for metrics that upstream takes from accounting objects (nfacct).

The kernel counts packets at every rule anyway, so the numbers are read from there when somebody scrapes: of two short chains,
never of those that grow with the Services. A rule that is written again begins at 0 again, which counts on from what it was.

Node ports on 127.0.0.1 are accepted where a packet that went into the chain of node ports did not come out of it again: the
first packet of each connection.
"""

from __future__ import annotations

import logging

from netproxy import metrics
from netproxy.errors import WriteError
from netproxy.settings import FixedChainSettings
from netproxy.xtables import chain_names
from netproxy.xtables.iptables_chains import counts_localhost
from netproxy.xtables.writer import Writer

log = logging.getLogger(__name__)


class PacketCounters:
    """Follows the counters of one family's tables."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._last: dict[str, int] = {}

    async def update(self, settings: FixedChainSettings) -> None:
        """Update the metrics; counters that cannot be read now are read at the next scrape."""
        try:
            if settings.drop_invalid:
                dropped, *_ = await self._writer.packets("filter", chain_names.FORWARD)
                metrics.INVALID_DROPPED.inc(self._increase("dropped", dropped))
            if counts_localhost(settings):
                entered, left, *_ = await self._writer.packets("nat", chain_names.LOCALHOST_NODE_PORTS)
                metrics.LOCALHOST_NODE_PORTS.inc(self._increase("accepted", max(0, entered - left)))
        except (WriteError, ValueError) as error:
            log.debug("packet counters cannot be read: %s", error)

    def _increase(self, name: str, count: int) -> int:
        last, self._last[name] = self._last.get(name, 0), count
        return count - last if count >= last else count
