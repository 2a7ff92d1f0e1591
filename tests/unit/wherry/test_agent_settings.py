"""Settings of the agent for its containerd: only Wherry's own is swept, with its actual folders."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from wherry import cni_plugins, containerd
from wherry.agent_settings import own_containerd
from wherry.settings import Settings


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cni_plugins, "FOLDERS", (str(tmp_path),))
    return tmp_path


def test_another_containerd_than_wherrys_is_left_alone() -> None:
    assert own_containerd(Settings(runtime_endpoint="unix:///run/containerd/containerd.sock")) is None


def test_the_folders_are_those_of_its_configuration(plugins: Path) -> None:
    (plugins / "bridge").touch()
    settings = Settings(prefix="/srv/one")
    reported = own_containerd(settings)
    configured = tomllib.loads(containerd.configuration(settings))
    cri = configured["plugins"]["io.containerd.grpc.v1.cri"]
    assert reported is not None
    assert str(reported.root) == configured["root"] and str(reported.state) == configured["state"]
    assert str(reported.socket) == configured["grpc"]["address"]
    assert list(map(str, reported.plugins)) == [cri["cni"]["bin_dir"]] == [str(plugins)]
    assert str(reported.network.parent) == cri["cni"]["conf_dir"]
    assert cri["netns_mounts_under_state_dir"] and reported.namespaces.is_relative_to(reported.state)


def test_an_agent_starts_on_a_machine_that_has_lost_its_cni_plugins(plugins: Path) -> None:
    reported = own_containerd(Settings(prefix="/srv/one"))
    assert reported is not None and reported.plugins == (plugins,)


@pytest.mark.parametrize("network", ["wherry", "none"])
def test_the_agent_searches_plugins_as_the_runtime_does(network: str, tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), pod_network=network)
    (tmp_path / "bridge").touch()
    reported = own_containerd(settings)
    configured = tomllib.loads(containerd.configuration(settings, bin_dirs=True))
    assert reported is not None
    cni = configured["plugins"]["io.containerd.grpc.v1.cri"]["cni"]
    assert list(map(str, reported.plugins)) == cni["bin_dirs"] and "bin_dir" not in cni
