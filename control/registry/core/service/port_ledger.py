"""Allocated node ports, shared by the servers of one store: upstream's bitmap at one key of the store.

Services are written without regard for each other, so two servers could give one port to two of them. Before a Service is
stored its ports are set in `/registry/ranges/servicenodeports` (a v1 RangeAllocation: a bit a port, a big-endian number)
with compare-and-swap: of two servers one has to choose again. A server alone needs none of this.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from control.storage import codec
from control.storage.store import KeyExists, KeyNotFound, RevisionConflict, Store

KEY = "/registry/ranges/servicenodeports"
LEAKED_AFTER = timedelta(seconds=60)
"""Time that a port may be taken without a Service before it counts as lost by a server that died in between."""


class Ledger(msgspec.Struct, frozen=True):
    """The ports taken as of a revision; revision 0: nothing is stored yet."""

    ports: frozenset[int]
    revision: int


class PortLedger:
    """The stored bitmap of the ports `first` .. `last`."""

    def __init__(self, node_ports: range) -> None:
        self._ports = node_ports
        self._suspects: dict[int, datetime] = {}

    async def read(self, store: Store) -> Ledger | None:
        """Return what is taken; None if nothing was ever stored."""
        item = await store.get(KEY)
        if item is None:
            return None
        bits = int.from_bytes(base64.b64decode(codec.decode(item.value).get("data") or ""), "big")
        taken = (self._ports.start + i for i in range(bits.bit_length()) if bits >> i & 1)
        return Ledger(frozenset(taken), item.revision)

    async def write(self, store: Store, ports: Iterable[int], before: Ledger | None) -> bool:
        """Store the allocated ports if the record is unchanged since `before`; return whether it was."""
        bits = sum(1 << (port - self._ports.start) for port in set(ports) if port in self._ports)
        data = bits.to_bytes((bits.bit_length() + 7) // 8, "big")
        shown = f"{self._ports.start}-{self._ports.stop - 1}"
        obj = {"kind": "RangeAllocation", "apiVersion": "v1", "metadata": {}, "range": shown}
        value = codec.encode({**obj, "data": base64.b64encode(data).decode()})
        try:
            if before is None:
                await store.create(KEY, value)
            else:
                await store.update(KEY, value, before.revision)
        except (KeyExists, KeyNotFound, RevisionConflict):
            return False
        return True

    async def release(self, store: Store, ports: Iterable[int]) -> None:
        """Release ports, and retry conflicts."""
        gone = frozenset(ports)
        while gone and (found := await self.read(store)) is not None and found.ports & gone:
            if await self.write(store, found.ports - gone, found):
                return

    def leaked(self, taken: Iterable[int], used: Iterable[int], now: datetime) -> set[int]:
        """Return the ports that have been without a Service for a minute, as this server has seen it."""
        without = set(taken) - set(used)
        self._suspects = {port: self._suspects.get(port, now) for port in without}
        return {port for port, since in self._suspects.items() if now - since > LEAKED_AFTER}
