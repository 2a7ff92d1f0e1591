"""Timeouts of attachments, in virtual time."""

from __future__ import annotations

from control.controllers.attach_detach.timeouts import ATTACH_SECONDS, AttachTimeouts
from tests.support.clock import FakeClock


async def test_each_node_has_a_timeout_of_its_own_which_repeats() -> None:
    clock = FakeClock()
    timeouts = AttachTimeouts(clock)
    assert timeouts.check("pv", ["a"]) == ([], ATTACH_SECONDS)
    await clock.advance(20)
    assert timeouts.check("pv", ["a", "b"]) == ([], ATTACH_SECONDS - 20)
    await clock.advance(ATTACH_SECONDS - 20)
    assert timeouts.check("pv", ["a", "b"]) == (["a"], 20)
    await clock.advance(20)
    assert timeouts.check("pv", ["a", "b"]) == (["b"], ATTACH_SECONDS - 20)
    await clock.advance(ATTACH_SECONDS - 20)
    assert timeouts.check("pv", ["a", "b"]) == (["a"], 20)


async def test_an_attachment_that_is_complete_or_not_wanted_is_forgotten() -> None:
    clock = FakeClock()
    timeouts = AttachTimeouts(clock)
    timeouts.check("pv", ["a"])
    await clock.advance(ATTACH_SECONDS)
    assert timeouts.check("pv", []) == ([], None)
    assert timeouts.check("pv", ["a"]) == ([], ATTACH_SECONDS)
