"""Garbage collections of a node's daemons."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from kube.serving import garbage


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "EVERY", 0.0)


async def iterations() -> None:
    for _ in range(5):
        await asyncio.sleep(0.001)


async def test_cycles_are_freed_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = 0
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    monkeypatch.setattr(garbage, "LONGEST", 60.0)
    gc.disable()
    try:
        cycle = weakref.ref(Cycle())
        task = asyncio.create_task(garbage.collect())
        await iterations()
        assert cycle() is not None
        frozen = 1000
        await iterations()
        assert cycle() is None and not task.done()
    finally:
        gc.enable()
    task.cancel()


async def test_a_collection_that_takes_too_long_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[object] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1000)
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    monkeypatch.setattr(garbage, "LONGEST", -1.0)
    await asyncio.wait_for(garbage.collect(), 10)
    assert len(collected) == 1
