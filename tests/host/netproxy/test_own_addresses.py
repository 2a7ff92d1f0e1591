"""The addresses of a node that its gateway takes for no endpoints, on a real kernel."""

from __future__ import annotations

import asyncio
import os

import pytest

from kube.clock import SYSTEM
from netproxy.gateway import own_addresses
from tests.support.netns import namespaces


def test_addresses_of_every_scope_are_seen_when_they_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_addresses, "PERIOD_SECONDS", 1000.0)
    with namespaces(f"np-{os.getpid()}-own") as (node,):
        node.run("ip", "link", "set", "lo", "up")
        node.run("ip", "address", "add", "10.9.0.1/32", "dev", "lo")

        async def work() -> None:
            own, changed = own_addresses.OwnAddresses(SYSTEM), asyncio.Event()
            following = asyncio.create_task(own.run(changed.set))

            async def seen(*addresses: str) -> None:
                async with asyncio.timeout(20):
                    while own.addresses != {"127.0.0.1", "::1", *addresses}:
                        await changed.wait()
                        changed.clear()

            async def change(*words: str) -> None:
                await asyncio.to_thread(node.run, "ip", "address", *words)

            await seen("10.9.0.1")
            await change("add", "10.9.0.2/32", "dev", "lo", "scope", "host")
            await seen("10.9.0.1", "10.9.0.2")
            await change("add", "fd99::7/128", "dev", "lo")
            await seen("10.9.0.1", "10.9.0.2", "fd99::7")
            await change("del", "10.9.0.1/32", "dev", "lo")
            await seen("10.9.0.2", "fd99::7")
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

        node.inside(work)
