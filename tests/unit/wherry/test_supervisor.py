from __future__ import annotations

import os
from collections.abc import Callable
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


def test_a_supervisors_process_id_can_be_read_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start writes the ID of the process that it has begun, and the process its own, while other commands read it."""
    path = tmp_path / "supervisor.lock"
    descriptor = supervisor.lock(path)
    seen: list[int] = []
    for name in ("pwrite", "ftruncate"):
        monkeypatch.setattr(os, name, _followed(getattr(os, name), lambda: seen.append(int(path.read_text()))))
    for pid in (4194304, 7, 12345):
        supervisor.note_pid(descriptor, pid)
    os.close(descriptor)
    assert seen == [4194304, 4194304, 7, 7, 12345, 12345]


def _followed(function: Callable[..., object], look: Callable[[], object]) -> Callable[..., object]:
    def called(*arguments: object) -> object:
        result = function(*arguments)
        look()
        return result

    return called
