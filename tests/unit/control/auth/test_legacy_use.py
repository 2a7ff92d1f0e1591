"""The use of tokens kept in Secrets is recorded in memory for one day and for a limited number of them."""

from __future__ import annotations

from typing import Any

from control.auth.legacy_use import MOST_NOTED, LegacyTokenUse
from tests.support.clock import FakeClock


def secret(name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "labels": {}}}


def waiting(use: LegacyTokenUse) -> list[str]:
    found = []
    while not use._waiting.empty():
        found.append(use._waiting.get_nowait()[1])
    return found


async def test_a_use_is_recorded_once_a_day_and_other_days_are_dropped() -> None:
    clock = FakeClock()
    use = LegacyTokenUse(clock)
    for name in ("a", "b", "a"):
        use.used(secret(name))
    assert waiting(use) == ["a", "b"]
    await clock.advance(24 * 3600)
    use.used(secret("a"))
    assert waiting(use) == ["a"] and len(use._noted) == 1


def test_recorded_uses_of_a_day_are_limited() -> None:
    use = LegacyTokenUse(FakeClock())
    for number in range(MOST_NOTED + 100):
        use.used(secret(str(number)))
    assert len(use._noted) <= MOST_NOTED
