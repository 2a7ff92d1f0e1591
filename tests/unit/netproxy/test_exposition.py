"""Scrapes of the metrics port, which needs no credentials."""

from __future__ import annotations

import asyncio

import pytest

from netproxy import metrics
from netproxy.exposition import Exposition
from tests.support.clock import FakeClock


async def test_many_scrapes_update_the_metrics_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    running, updates, texts = 0, list[int](), list[bytes]()

    async def update() -> None:
        nonlocal running
        running += 1
        updates.append(running)
        await asyncio.sleep(0)
        running -= 1

    def exposition() -> bytes:
        texts.append(b"text %d" % len(texts))
        return texts[-1]

    monkeypatch.setattr(metrics, "exposition", exposition)
    clock = FakeClock()
    made = Exposition([update, update], clock)
    for number in range(3):
        found = await asyncio.gather(*(made.text() for _ in range(64)))
        assert set(found) == {b"text %d" % number}
        assert len(updates) == 2 * (number + 1) and set(updates) == {1}
        await clock.advance(1)


async def test_an_update_that_fails_is_made_again_by_the_next_scrape() -> None:
    outcomes = [ValueError("not now"), None]

    async def update() -> None:
        if error := outcomes.pop(0):
            raise error

    made = Exposition([update], FakeClock())
    with pytest.raises(ValueError, match="not now"):
        await made.text()
    assert b"kubernetes_build_info" in await made.text()
