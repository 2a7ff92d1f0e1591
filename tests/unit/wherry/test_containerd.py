"""The configuration of Wherry's own containerd."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from wherry import cni_plugins, containerd
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


def test_nothing_of_it_is_where_another_containerd_has_its_own(configuration: dict[str, object]) -> None:
    def paths(part: object) -> list[str]:
        if isinstance(part, dict):
            return [path for value in part.values() for path in paths(value)]
        return [part] if isinstance(part, str) and part.startswith("/") else []

    found = paths(configuration)
    assert "/srv/one/run/wherry/nri.sock" in found
    plugins = str(cni_plugins.FOLDERS[0])
    assert [path for path in found if not path.startswith(("/srv/one/", plugins))] == []
