from __future__ import annotations

from pathlib import Path

import pytest

from wherry import supervisor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: now[0])
    return now


def test_a_daemon_that_served_is_started_again_at_once_every_time(tmp_path: Path, clock: list[float]) -> None:
    daemon = supervisor.Daemon("agent", [], tmp_path, tmp_path)
    for _ in range(20):
        daemon.started = clock[0]
        clock[0] += 4.0
        daemon.ended()
        assert daemon.due <= clock[0]


def test_a_daemon_that_dies_young_waits_longer_each_time_and_is_never_given_up(
    tmp_path: Path, clock: list[float]
) -> None:
    daemon = supervisor.Daemon("agent", [], tmp_path, tmp_path)
    waits = []
    for _ in range(30):
        daemon.started = clock[0]
        clock[0] += 0.1
        daemon.ended()
        waits.append(daemon.due - clock[0])
        clock[0] = daemon.due
    assert waits[0] == 0.0 and waits[1:3] == pytest.approx([0.2, 0.4])
    assert max(waits) == waits[-1] == supervisor.LAST_DELAY
