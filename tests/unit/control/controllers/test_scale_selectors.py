"""Selectors of scales: compiled once for all autoscalers that have the same one, and limited for each namespace."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from control.controllers.autoscaling import scale_selectors
from control.controllers.autoscaling.scale_selectors import ScaleSelectors, TooManySelectors

LARGE = "app," + ",".join(f"!k{number:04}" for number in range(5000))


def everything() -> ScaleSelectors:
    return ScaleSelectors()


async def test_autoscalers_with_the_same_selector_share_one() -> None:
    known = everything()
    first = await known.of("n/a", "n", "app=web")
    assert await known.of("n/b", "n", "app=web") is first
    assert known.candidates("n", {"app": "web"}) == ["n/a", "n/b"]
    known.drop("n/a")
    assert known.candidates("n", {"app": "web"}) == ["n/b"] and known.get("n/b") is first
    known.drop("n/b")
    assert not known._shared and not known._sizes and not known._places


async def test_many_autoscalers_of_one_large_selector_take_the_memory_of_one() -> None:
    known = everything()
    await known.of("n/first", "n", LARGE)
    tracemalloc.start()
    try:
        for number in range(20):
            await known.of(f"n/a{number}", "n", "".join(LARGE))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 100_000


async def test_autoscalers_at_the_same_time_share_one_as_well() -> None:
    known = everything()
    found = await asyncio.gather(*(known.of(f"n/a{number}", "n", LARGE) for number in range(5)))
    assert len(known._shared) == 1
    assert len({id(known.get(f"n/a{number}")) for number in range(5)}) == 1
    assert all(selector == found[0] for selector in found)


async def test_the_selectors_of_a_namespace_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_selectors, "MOST_OF_A_NAMESPACE", 100)
    known = everything()
    await known.of("n/a", "n", "a=" + "b" * 50)
    with pytest.raises(TooManySelectors):
        await known.of("n/b", "n", "a=" + "c" * 50)
    await known.of("other/b", "other", "a=" + "c" * 50)
    await known.of("n/c", "n", "a=" + "b" * 50)
    with pytest.raises(TooManySelectors):
        await known.of("n/a", "n", "a=" + "d" * 50)
    assert known.candidates("n", {"a": "b" * 50}) == ["n/c"]
    await known.of("n/c", "n", "a=" + "d" * 50)
    await known.of("n/a", "n", "a=" + "d" * 50)
