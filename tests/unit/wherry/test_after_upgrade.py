"""Daemons that run are restarted after an upgrade of the programs, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from wherry import after_upgrade
from wherry.settings import Settings


class Machine:
    """Daemons by their process IDs, and what was done to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, systemd: bool, **pids: int) -> None:
        self.pids, self.calls = pids, list[str]()
        monkeypatch.setattr(after_upgrade.units, "uses_systemd", lambda _: systemd)
        monkeypatch.setattr(after_upgrade.units, "restart", self._restart)
        for name in ("running", "stop", "start"):
            monkeypatch.setattr(after_upgrade.daemons, name, getattr(self, f"_{name}"))

    async def _running(self, _: Settings) -> dict[str, int]:
        return self.pids

    async def _restart(self, names: list[str]) -> None:
        self.calls.append(f"restart {' '.join(names)}")

    async def _stop(self, _: Settings) -> bool:
        self.calls.append("stop")
        return True

    async def _start(self, _: Settings) -> None:
        self.calls.append("start")


async def test_systemd_restarts_the_roles_that_run_but_not_containerd(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, systemd=True, containerd=1, control=2, agent=3, netproxy=0)
    assert await after_upgrade.restart_running(Settings()) == ["control", "agent"]
    assert machine.calls == ["restart control agent"]


async def test_without_systemd_a_new_supervisor_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, systemd=False, containerd=1, agent=3)
    assert await after_upgrade.restart_running(Settings()) == ["agent"]
    assert machine.calls == ["stop", "start"]


@pytest.mark.parametrize("systemd", [True, False])
async def test_nothing_is_started_that_did_not_run(systemd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, systemd=systemd, containerd=1, control=0, agent=0)
    assert await after_upgrade.restart_running(Settings()) == []
    assert machine.calls == []


def test_a_machine_without_a_cluster_has_nothing_to_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert after_upgrade.main(str(tmp_path)) == 0
    assert capsys.readouterr() == ("", "")


def test_settings_that_cannot_be_read_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Settings(prefix=str(tmp_path)).layout.settings
    path.parent.mkdir(parents=True)
    path.write_text("damaged")
    assert after_upgrade.main(str(tmp_path)) == 1
    assert "wherry.json is damaged" in capsys.readouterr().err
