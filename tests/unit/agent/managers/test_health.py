"""Device health that drivers report, and how long a report is valid."""

from __future__ import annotations

from agent.claims.device_health import DeviceHealthCache, Health


def test_health_is_valid_for_the_drivers_timeout() -> None:
    changes: list[None] = []
    healths = DeviceHealthCache(lambda: changes.append(None))
    assert healths.of("d", "p", "x", 0.0) == ("Unknown", "")
    healths.update("d", [Health("p", "x", "Healthy", at=100.0), Health("p", "y", "Unhealthy", "hot", 100.0, 60)])
    assert len(changes) == 1
    assert healths.of("d", "p", "x", 130.0) == ("Healthy", "")
    assert healths.of("d", "p", "x", 131.0) == ("Unknown", "")
    assert healths.of("d", "p", "y", 131.0) == ("Unhealthy", "hot")
    healths.update("d", [Health("p", "x", "Healthy", at=200.0), Health("p", "y", "Unhealthy", "hot", 200.0, 60)])
    assert len(changes) == 1  # said again, and nothing new
    healths.forget("d")
    healths.forget("d")
    assert len(changes) == 2 and healths.of("d", "p", "y", 200.0) == ("Unknown", "")


def test_long_words_are_cut() -> None:
    healths = DeviceHealthCache(lambda: None)
    healths.update("d", [Health("p", "x", "Unhealthy", "m" * 2000, 0.0)])
    text = healths.of("d", "p", "x", 0.0)[1]
    assert len(text) == 1024 and text.endswith("m...")
