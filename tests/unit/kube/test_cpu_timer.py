"""Timers of CPU time: they measure what the thread computes, and the kernel holds nothing for them after their end."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube import cpu_timer
from kube.cpu_timer import CpuTimer
from tests.support.cpu_signals import burn, cpu_signals


@pytest.fixture
def signals() -> Iterator[list[float]]:
    with cpu_signals() as found:
        yield found


def test_once_is_once_and_it_can_be_started_anew(signals: list[float]) -> None:
    timer = CpuTimer(0.02, repeats=False)
    for number in (1, 2):
        timer.start()
        burn(0.15)
        assert len(signals) == number
    timer.start()
    timer.stop()
    burn(0.1)
    assert len(signals) == 2
    timer.close()


def test_it_does_not_run_while_the_thread_waits_or_others_compute(signals: list[float]) -> None:
    timer = CpuTimer(0.05)
    timer.start()
    other = threading.Thread(target=burn, args=(0.3,))
    other.start()
    other.join()
    timer.close()
    assert len(signals) <= 1


def test_the_kernel_holds_nothing_after_it(signals: list[float]) -> None:
    def held() -> int:
        return Path("/proc/self/timers").read_text().count("ClockID:")

    before = held()
    timer = CpuTimer(0.05)
    assert held() == before + 1
    timer.close()
    timer.close()
    assert held() == before


def test_the_timer_of_the_process_serves_where_the_library_has_none(
    signals: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_timer, "_library", lambda: None)
    timer = CpuTimer(0.02)
    timer.start()
    assert signal.getitimer(signal.ITIMER_PROF) == pytest.approx((0.02, 0.02), abs=0.01)
    timer.close()
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_the_timer_of_the_process_serves_where_the_kernel_refuses_another(
    signals: list[float], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuTimer, "_reported", False)
    soft, hard = resource.getrlimit(resource.RLIMIT_SIGPENDING)
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, hard))
    try:
        for _ in range(2):
            timer = CpuTimer(0.02)
            timer.start()
            assert signal.getitimer(signal.ITIMER_PROF) != (0.0, 0.0)
            burn(0.3)
            timer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_SIGPENDING, (soft, hard))
    assert signals and signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert [each.message for each in caplog.records] == [
        "limits of CPU time are measured by ITIMER_PROF, which may be late: "
        "[Errno 11] timer_create: Resource temporarily unavailable"
    ]
    timer = CpuTimer(0.02)
    timer.start()
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    timer.close()
