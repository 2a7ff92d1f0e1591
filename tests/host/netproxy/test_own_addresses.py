"""The addresses of a node that its gateway takes for no endpoints, on a real kernel."""

from __future__ import annotations

import asyncio
import os

from netproxy.gateway.own_addresses import OwnAddresses
from tests.support.clock import FakeClock
from tests.support.netns import namespaces


def test_addresses_of_every_scope_are_seen_when_they_come_and_go() -> None:
    with namespaces(f"np-{os.getpid()}-own") as (node,):
        node.run("ip", "link", "set", "lo", "up")
        node.run("ip", "address", "add", "10.9.0.1/32", "dev", "lo")

        async def change(*words: str) -> None:
            await asyncio.to_thread(node.run, "ip", "address", *words)

        async def work() -> None:
            clock = FakeClock()
            own, changes = OwnAddresses(clock), asyncio.Event()
            assert await own.read()
            assert own.addresses == {"127.0.0.1", "::1", "10.9.0.1"}
            following = asyncio.create_task(own.run(changes.set))

            async def seen(*addresses: str) -> None:
                async with asyncio.timeout(20):
                    await changes.wait()
                    changes.clear()
                    assert own.addresses == {"127.0.0.1", "::1", *addresses}
                    await clock.advance(0.3)  # less than the period

            async with asyncio.timeout(20):
                await clock.sleeping()
            await clock.advance(0.3)
            await change("add", "10.9.0.2/32", "dev", "lo", "scope", "host")
            await seen("10.9.0.1", "10.9.0.2")
            await change("add", "fd99::7/128", "dev", "lo")
            await seen("10.9.0.1", "10.9.0.2", "fd99::7")
            await change("del", "10.9.0.1/32", "dev", "lo")
            await seen("10.9.0.2", "fd99::7")
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

        node.inside(work)
