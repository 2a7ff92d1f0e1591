"""Small things are checked again at once, large ones after a moment that grows with them."""

from __future__ import annotations

from control.controllers.pace import MANY, Pace


def test_only_what_has_many_pods_waits_and_longer_the_more_there_are() -> None:
    pace = Pace()
    assert pace.wait("default/new") == 0
    pace.saw("default/web", MANY)
    assert pace.wait("default/web") == 0
    pace.saw("default/web", 1000)
    assert pace.wait("default/web") == 0.05
    pace.saw("default/web", 5000)
    assert pace.wait("default/web") == 0.25
    assert pace.wait("default/other") == 0
    pace.forget("default/web")
    assert pace.wait("default/web") == 0
