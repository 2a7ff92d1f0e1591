"""Timers of CPU time on a busy machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kube.cpu_timer import CpuTimer
from tests.support.cpu_signals import burn, cpu_signals


@pytest.fixture
def signals() -> Iterator[list[float]]:
    with cpu_signals() as found:
        yield found


@pytest.fixture
def busy() -> Iterator[None]:
    """Processes that take all cores, twice."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    yield
    for each in others:
        each.kill()
    for each in others:
        each.wait()


def test_it_repeats_after_the_same_cpu_time_on_a_busy_machine(signals: list[float], busy: None) -> None:
    timer = CpuTimer(0.05)
    timer.start()
    burn(1.5)
    timer.close()
    assert len(signals) >= 15, "ITIMER_PROF sends 5 to 12"
    count = len(signals)
    burn(0.1)
    assert len(signals) == count
