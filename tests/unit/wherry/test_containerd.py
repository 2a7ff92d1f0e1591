"""The configuration of Wherry's own containerd."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from kube.process import Result
from wherry import cni_plugins, containerd, daemons, oci, pause
from wherry.settings import Settings


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(cni_plugins, "FOLDERS", (str(tmp_path),))
    (tmp_path / "bridge").touch()
    return tomllib.loads(containerd.configuration(Settings(prefix="/srv/one")))


def test_every_containerd_from_debian_12_on_reads_it(configuration: dict[str, object]) -> None:
    assert configuration["version"] == 2, "3 is for containerd 2 alone, and 1 it reads no more"
    plugins = configuration["plugins"]
    assert isinstance(plugins, dict) and plugins["io.containerd.grpc.v1.cri"]["enable_cdi"] is True


def test_the_restart_monitor_is_disabled_under_both_its_names(configuration: dict[str, object]) -> None:
    disabled = configuration["disabled_plugins"]
    assert isinstance(disabled, list)
    assert {"io.containerd.internal.v1.restart", "io.containerd.monitor.container.v1.restart"} <= set(disabled)


def test_a_changed_configuration_is_recorded_for_a_containerd_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cni_plugins, "FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(containerd, "has_bin_dirs", lambda: False)
    (tmp_path / "bridge").touch()
    settings = Settings(prefix=str(tmp_path))
    pending = daemons.containerd_pending_file(settings)
    containerd.write_configuration(settings)
    containerd.write_configuration(settings)
    assert not pending.exists()
    settings.layout.containerd_configuration.write_text("version = 2\n")
    containerd.write_configuration(settings)
    assert pending.exists()


def test_nothing_of_it_is_where_another_containerd_has_its_own(configuration: dict[str, object]) -> None:
    def paths(part: object) -> list[str]:
        if isinstance(part, dict):
            return [path for value in part.values() for path in paths(value)]
        return [part] if isinstance(part, str) and part.startswith("/") else []

    found = paths(configuration)
    assert "/srv/one/run/wherry/nri.sock" in found
    plugins = str(cni_plugins.FOLDERS[0])
    assert [path for path in found if not path.startswith(("/srv/one/", plugins))] == []


@pytest.mark.parametrize(
    ("printed", "several"),
    [
        ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", False),
        ("containerd github.com/containerd/containerd v1.7.27 05044ec0a9a7", False),
        ("containerd github.com/containerd/containerd/v2 v2.0.5 fb4c30d4", False),
        ("containerd github.com/containerd/containerd/v2 2.1.9+unknown ", True),
        ("containerd github.com/containerd/containerd/v2 v3.0.0 abc", True),
        ("", False),
    ],
)
def test_the_installed_version_decides_whether_several_folders_of_plugins_are_searched(
    monkeypatch: pytest.MonkeyPatch, printed: str, several: bool
) -> None:
    monkeypatch.setattr(containerd.shutil, "which", lambda program: f"/usr/bin/{program}")
    done = subprocess.CompletedProcess([], 0, printed, "")
    monkeypatch.setattr(containerd.subprocess, "run", lambda *_, **__: done)
    assert containerd.has_bin_dirs() is several


@pytest.mark.parametrize(
    ("listed", "imports"),
    [("the same", 0), ("another image", 1), ("", 1), ("only its digest", 1)],
)
async def test_the_built_in_sandbox_image_replaces_another_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, imports: int
) -> None:
    """Whatever had given a node an image of the name would be the first process of all its pods."""
    settings = Settings(prefix=str(tmp_path))
    pause.write_image(settings.layout.pause_archive)
    digest = oci.digest(settings.layout.pause_archive)
    row = {
        "the same": f"{pause.IMAGE} application/vnd.oci.image.manifest.v1+json {digest} 1.0 KiB linux/amd64 managed",
        "another image": f"{pause.IMAGE} application/vnd.oci.image.index.v1+json sha256:{'0' * 64} 1.0 KiB linux/amd64 -",
        "only its digest": f"{digest} application/vnd.oci.image.manifest.v1+json {digest} 1.0 KiB linux/amd64 -",
        "": "",
    }[listed]
    imported: list[str] = []

    async def run(argv: list[str], stdin: int = -1, **_: object) -> Result:
        if "import" in argv:
            imported.append(os.readlink(f"/proc/self/fd/{stdin}"))
        return Result(0, f"REF TYPE DIGEST SIZE PLATFORMS LABELS \n{row}\n", "")

    monkeypatch.setattr(containerd, "run", run)
    await containerd.ensure_sandbox_image(settings)
    assert imported == [str(settings.layout.pause_archive)] * imports
