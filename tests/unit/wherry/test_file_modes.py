from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from wherry import check, configuration, containerd, file_modes, supervisor
from wherry import settings as saved
from wherry.errors import WherryError
from wherry.option_checks import complete
from wherry.settings import Settings


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["open", "usual", "closed"])
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def installation(folder: Path) -> Settings:
    return complete(
        Settings(prefix=str(folder), node_name="n1", registry_mirrors={"a.example": "http://m"}), "192.0.2.1"
    )


def paths(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_what_up_writes_is_for_root_alone_whatever_the_mask(
    tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containerd, "has_bin_dirs", lambda: False)
    settings = installation(tmp_path)
    file_modes.make_folders(settings)
    settings.save()
    containerd.write_configuration(settings)
    configuration.write_all(settings)
    layout = settings.layout
    supervisor.write_plan(layout.run / "daemons.json", layout.run, layout.logs, {})
    for folder in file_modes.folders(settings):
        assert stat.S_IMODE(folder.path.stat().st_mode) == folder.mode, folder
    assert file_modes.world_readable(layout, paths(tmp_path)) == []
    assert stat.S_IMODE(layout.settings.stat().st_mode) == 0o600
    assert len(list(paths(tmp_path))) > 20


def test_a_file_that_everybody_can_read_is_found_unless_a_folder_is_closed(tmp_path: Path) -> None:
    settings = installation(tmp_path)
    file_modes.make_folders(settings)
    layout = settings.layout
    open_, shut = layout.etc / "more.yaml", layout.pki / "more.crt"
    for file in (open_, shut):
        file.write_text("")
        file.chmod(0o644)
    assert file_modes.world_readable(layout, paths(tmp_path)) == [open_]


def test_folders_of_an_older_installation_are_closed_and_never_opened(tmp_path: Path) -> None:
    settings = installation(tmp_path)
    control, kubelet = settings.layout.state / "control", settings.layout.kubelet
    control.mkdir(parents=True, mode=0o755)
    kubelet.mkdir(parents=True)
    kubelet.chmod(0o700)
    file_modes.make_folders(settings)
    assert stat.S_IMODE(control.stat().st_mode) == 0o700
    assert stat.S_IMODE(kubelet.stat().st_mode) == 0o700


def test_settings_of_an_older_version_are_closed_and_the_check_warns_of_them(tmp_path: Path) -> None:
    settings = installation(tmp_path)
    settings.save()
    settings.layout.settings.chmod(0o644)
    assert [finding.level for finding in check._settings_file(settings)] == ["warning"]
    settings.save()
    assert stat.S_IMODE(settings.layout.settings.stat().st_mode) == 0o600
    assert list(check._settings_file(settings)) == []


def test_the_control_planes_account_may_read_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, int, int]] = []
    monkeypatch.setattr(
        saved, "write_file", lambda path, data, mode, group=-1: written.append((path.name, mode, group))
    )
    monkeypatch.setattr(saved, "account", lambda: SimpleNamespace(pw_gid=973))
    for each in (Settings(), Settings(role="worker"), Settings(prefix="/tmp/second")):
        each.save()
    assert [each for each in written if each[0] == "wherry.json"] == [
        ("wherry.json", 0o640, 973),
        ("wherry.json", 0o600, -1),
        ("wherry.json", 0o600, -1),
    ]
    assert {each for each in written if each[0] != "wherry.json"} == {("settings.json", 0o600, -1)}


def test_a_user_who_may_not_read_the_settings_is_advised_to_use_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation(tmp_path).save()

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(WherryError, match=r"wherry\.json is only for root, .*: run it with sudo"):
        saved.load(str(tmp_path))
