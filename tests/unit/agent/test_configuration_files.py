"""The file of --config and the folder of --config-dir become one configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.configuration_files import load
from agent.configure import from_flags
from agent.flags import Flags
from agent.kubelet_configuration import ConfigError

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + text)
    return path


def test_the_folders_files_are_laid_over_the_file_in_the_order_of_their_names(tmp_path: Path) -> None:
    file = write(tmp_path / "kubelet.yaml", "maxPods: 10\npodPidsLimit: 5\nclusterDNS: [10.0.0.1, 10.0.0.2]\n")
    write(tmp_path / "d/20-more.conf", "maxPods: 30\n")
    write(tmp_path / "d/10-some.conf", "maxPods: 20\nclusterDNS: [10.0.0.3]\n")
    found, _ = load(file, tmp_path / "d")
    assert (found.max_pods, found.pod_pids_limit, found.cluster_dns) == (30, 5, ["10.0.0.3"])


def test_settings_inside_of_settings_are_merged_one_by_one(tmp_path: Path) -> None:
    file = write(
        tmp_path / "kubelet.yaml", "kubeReserved: {cpu: 100m, memory: 1Gi}\nmemorySwap: {swapBehavior: NoSwap}\n"
    )
    write(tmp_path / "d/a.conf", "kubeReserved: {memory: 2Gi}\nmemorySwap: {swapBehavior: LimitedSwap}\n")
    found, _ = load(file, tmp_path / "d")
    assert found.kube_reserved == {"cpu": "100m", "memory": "2Gi"}
    assert found.memory_swap.swap_behavior == "LimitedSwap"


def test_other_names_are_passed_over_and_folders_in_the_folder_are_not(tmp_path: Path) -> None:
    write(tmp_path / "d/README", "maxPods: 1\n")
    write(tmp_path / "d/10.yaml", "maxPods: 2\n")
    write(tmp_path / "d/in/10.conf", "maxPods: 3\nflushFrequency: 1s\n")
    found, idle = load(None, tmp_path / "d")
    assert (found.max_pods, idle) == (3, ["flushFrequency"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "maxPodz: 1\n", "bad.conf: .*maxPodz"),
        ("maxPods: 1\n", "bad.conf: expected kubelet.config.k8s.io/v1beta1 KubeletConfiguration"),
    ],
)
def test_an_error_names_the_file_that_it_is_in(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.conf").write_text(text)
    write(tmp_path / "good.conf", "maxPods: 1\n")
    with pytest.raises(ConfigError, match=message):
        load(None, tmp_path)


def test_the_folder_has_to_be_there_and_flags_name_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="drop-in directory"):
        from_flags(Flags(config_dir=str(tmp_path / "gone")))
    write(tmp_path / "a.conf", "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n")
    assert [p.seconds for p in from_flags(Flags(config_dir=str(tmp_path))).shutdown_periods] == [20, 10]
