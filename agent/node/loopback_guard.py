"""Drops packets from other devices to 127.0.0.0/8 with every proxy, as the chain KUBE-FIREWALL of upstream's kubelet.

CNI plugins such as portmap set `route_localnet` of their bridge for the first pod with a host port. From then on the kernel
delivers what pods send to 127.0.0.0/8 to servers that listen there because nobody else should reach them (CVE-2020-8558).
Packets are judged as they came in, before connection tracking: translated ones get such an address only later. The kernel
itself drops those to ::1.
"""

from __future__ import annotations

import logging
import shutil

from kube.clock import SYSTEM, Clock
from kube.process import CommandError, run

log = logging.getLogger(__name__)
TABLE = "inet wherry-localnet"
RULES = (
    f"table {TABLE} {{ chain prerouting {{ type filter hook prerouting priority -310; policy accept; "
    'iifname != "lo" ip daddr 127.0.0.0/8 drop; }\n}'
)
PERIOD = 60.0
"""Seconds between two checks, as upstream's."""


class LoopbackGuard:
    """The table of nf_tables, which others may remove."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock, self._logged = clock, ""

    async def run(self) -> None:
        """Write the table again if others changed it."""
        while True:
            await self._clock.sleep(PERIOD)
            await self.verify()

    async def verify(self) -> bool:
        """Write the table unless it is in force; return whether it is."""
        try:
            listed = await run(["nft", "list", "table", *TABLE.split()], check=False)
            if listed.returncode or _words(listed.stdout) != _words(RULES):
                await run(["nft", "-f", "-"], input=f"table {TABLE} {{}}\ndelete table {TABLE}\n{RULES}\n")
        except CommandError as error:
            if str(error) != self._logged:
                log.error("pods can reach servers on the node's loopback addresses: %s", error)
            self._logged = str(error)
            return False
        self._logged = ""
        return True


async def remove() -> None:
    """Remove the table; no error if there is none."""
    if shutil.which("nft") is not None:
        await run(["nft", "delete", "table", *TABLE.split()], check=False)


def _words(text: str) -> list[str]:
    """Reduce to what matters: nft lists with other line ends and names than it is given."""
    for mark in ";{}":
        text = text.replace(mark, " ")
    return text.replace("priority raw - 10 ", "priority -310 ").split()
