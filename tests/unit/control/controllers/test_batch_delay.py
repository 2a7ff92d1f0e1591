"""Small things are checked again at once, large ones after a moment that grows with them."""

from __future__ import annotations

from control.controllers.batch_delay import MANY, BatchDelay


def test_only_what_has_many_pods_waits_and_longer_the_more_there_are() -> None:
    delay = BatchDelay()
    assert delay.wait("default/new") == 0
    delay.record("default/web", MANY)
    assert delay.wait("default/web") == 0
    delay.record("default/web", 1000)
    assert delay.wait("default/web") == 0.05
    delay.record("default/web", 5000)
    assert delay.wait("default/web") == 0.25
    assert delay.wait("default/other") == 0
    delay.forget("default/web")
    assert delay.wait("default/web") == 0
