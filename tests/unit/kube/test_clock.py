"""The system's clock: counting of the time while the machine is suspended."""

from __future__ import annotations

import time

import pytest

from kube.clock import SystemClock


def test_boottime_counts_a_suspend_and_monotonic_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, suspended = SystemClock(), [0.0]
    gettime, monotonic = time.clock_gettime, time.monotonic
    monkeypatch.setattr(
        time, "clock_gettime", lambda id: gettime(id) + (suspended[0] if id == time.CLOCK_BOOTTIME else 0)
    )
    monkeypatch.setattr(time, "monotonic", monotonic)
    boottime, elapsed = clock.boottime(), clock.monotonic()
    suspended[0] = 3600.0
    assert clock.boottime() - boottime >= 3600
    assert clock.monotonic() - elapsed < 60
