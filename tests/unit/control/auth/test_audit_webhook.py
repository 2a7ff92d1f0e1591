from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from control.auth import audit_webhook
from control.auth.audit import ERRORS
from control.auth.audit_webhook import Batching, BatchWebhook, BlockingWebhook
from control.auth.webhooks.client import ReviewFailed
from tests.support.clock import FakeClock


class Client:
    """A program that answers once it is `open`, and does not take the first batch."""

    def __init__(self) -> None:
        self.open, self.bodies = asyncio.Event(), list[bytes]()

    async def send(self, body: bytes) -> bytes:
        self.bodies.append(body)
        number = len(self.bodies)
        await self.open.wait()
        if number == 1:
            raise ReviewFailed("not now")
        return b""

    async def close(self) -> None:
        pass


def line(size: int) -> bytes:
    return b'"%b"\n' % (b"x" * (size - 3))


def sizes(client: Client) -> list[list[int]]:
    lists: list[dict[str, Any]] = [json.loads(body) for body in client.bodies]
    return [[len(item) + 3 for item in found["items"]] for found in lists]


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_events_that_wait_or_are_being_sent_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_webhook, "BUFFER_BYTES", 1000)
    client, clock, lost = Client(), FakeClock(), ERRORS.values.get(("webhook",), 0)
    webhook = BatchWebhook(client, clock, Batching(max_size=2))  # type: ignore[arg-type]
    running = asyncio.create_task(webhook.run())
    for _ in range(12):
        webhook.write(line(100))
        await asyncio.sleep(0)
    await until(lambda: len(client.bodies) == 5)
    assert sizes(client) == [[100, 100]] * 5 and ERRORS.values[("webhook",)] - lost == 2
    client.open.set()
    await until(lambda: not webhook._sending)
    assert webhook._sending_bytes == webhook._waiting_bytes == 0
    assert ERRORS.values[("webhook",)] - lost == 4, "the first batch, too"
    for _ in range(2):
        webhook.write(line(100))
    await until(lambda: len(client.bodies) == 6)
    running.cancel()
    await webhook.close()


async def test_events_of_a_batch_by_their_bytes_do_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_webhook, "BATCH_BYTES", 250)
    client = Client()
    webhook = BatchWebhook(client, FakeClock(), Batching(max_size=100))  # type: ignore[arg-type]
    running = asyncio.create_task(webhook.run())
    for _ in range(6):
        webhook.write(line(100))
    await until(lambda: len(client.bodies) == 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert sizes(client) == [[100, 100]] * 2, "less than a batch is left"
    client.open.set()
    running.cancel()
    await webhook.close()
    assert sizes(client) == [[100, 100]] * 3


async def test_a_batch_has_no_more_bytes_than_upstreams_unless_one_event_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_webhook, "BATCH_BYTES", 250)
    client = Client()
    client.open.set()
    webhook = BatchWebhook(client, FakeClock(), Batching(max_size=100))  # type: ignore[arg-type]
    for size in (100, 100, 100, 900, 100):
        webhook.write(line(size))
    await webhook.close()
    assert sizes(client) == [[100, 100], [100], [900], [100]]


async def test_a_users_events_in_blocking_mode_delay_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_webhook, "PLACES", 2)
    monkeypatch.setattr(audit_webhook, "PLACES_OF_ONE", 1)
    client = Client()
    client.bodies.append(b"")  # the first is refused
    webhook = BlockingWebhook(client, strict=True)  # type: ignore[arg-type]
    writes = [webhook.write(line(100 + number), b'{"username":"flood"}') for number in range(5)]
    tasks = [asyncio.ensure_future(write) for write in writes if write is not None]
    await until(lambda: len(client.bodies) == 2)
    other = webhook.write(line(50), b'{"username":"ann"}')
    assert other is not None
    tasks.append(asyncio.ensure_future(other))
    await until(lambda: len(client.bodies) == 3)
    assert len(json.loads(client.bodies[2])["items"][0]) == 47
    client.open.set()
    await asyncio.gather(*tasks)
    assert len(client.bodies) == 7
