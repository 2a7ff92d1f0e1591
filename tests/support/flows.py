"""Flows of connection tracking, and a table that holds them in place of the kernel's."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
from collections.abc import Callable

import pytest

from netproxy import flow_table
from netproxy.flow_table import Flow


def flow(to: str, port: int, answering: str, answering_port: int, protocol: int = 17, source: str = "10.0.0.1") -> Flow:
    """Return a flow from `source` to an address and port that another address and port answers."""
    packed = [ipaddress.ip_address(each).packed for each in (source, to, answering)]
    return Flow(protocol, packed[0], packed[1], port, packed[2], answering_port)


class Table:
    """Stands for the kernel's table: `flows` of IPv4 until they are deleted. Its lists wait while it hangs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *flows: Flow) -> None:
        self.flows, self.deleted = list(flows), list[Flow]()
        self.lists = self.under_way = self.most = 0
        self.errors: list[Exception] = []
        self.threads: set[int] = set()
        self.going = threading.Event()
        self.going.set()
        self._lock = threading.Lock()
        monkeypatch.setattr(flow_table, "connect", lambda: None)
        monkeypatch.setattr(flow_table, "delete_stale", self.delete)

    def delete(self, connection: None, version: int, protocol: int, stale: Callable[[Flow], bool], port: int) -> int:
        with self._lock:
            self.lists += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.threads.add(threading.get_ident())
        try:
            self.going.wait(30)
            if self.errors:
                raise self.errors.pop()
            found = [each for each in self.flows if version == 4 and each.protocol == protocol and stale(each)]
            assert all(port in (0, each.port) for each in found)
            self.flows = [each for each in self.flows if each not in found]
            self.deleted += found
            return len(found)
        finally:
            with self._lock:
                self.under_way -= 1


async def until(look: Callable[[], object]) -> None:
    """Wait until `look` returns something true."""
    async with asyncio.timeout(10):
        while not look():
            await asyncio.sleep(0.005)
