"""Mounts of a pod and of a namespace's pods are limited, so that those of others always find room."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent.podspec.environment import ContainerConfigError
from agent.volumes import cleanup, mount_budget, mounts
from agent.volumes.manager import MountsFailed, VolumeManager
from agent.volumes.mount_budget import MOST, MOST_VOLUMES, MountBudget
from agent.volumes.mounted_volume import MountedVolume
from kube.api import core_v1
from tests.unit.agent.pods import mounting, pod


def with_sub_paths(number: int, uid: str = "u", namespace: str = "n") -> core_v1.Pod:
    mounted = [{"name": "v", "mountPath": f"/m/{index}", "subPath": "x"} for index in range(number)]
    return pod(
        {"name": "c", "volumeMounts": mounted},
        volumes=[{"name": "v", "emptyDir": {}}],
        metadata={"uid": uid, "namespace": namespace},
    )


def manager(folder: Path) -> VolumeManager:
    nobody: Any = None
    return VolumeManager(folder, nobody, nobody, nobody, nobody)


async def test_a_container_of_a_pod_with_too_many_sub_paths_is_not_created(tmp_path: Path) -> None:
    given = with_sub_paths(MOST + 1)
    with pytest.raises(ContainerConfigError, match="the pod has 1025 mounts of volumes and subPaths, 1024 are allowed"):
        await manager(tmp_path).container_mounts(given, given.spec.containers[0], {"v": MountedVolume(tmp_path)}, {})


async def test_a_namespace_has_a_quarter_of_the_kernels_mounts_and_others_have_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "bind_descriptor", lambda descriptor, target: None)
    volumes = manager(tmp_path)
    volumes._mount_budget = MountBudget(lambda: 40)
    (tmp_path / "volume").mkdir()
    mounted = {"v": MountedVolume(tmp_path / "volume")}

    async def create(given: core_v1.Pod) -> int:
        return len(await volumes.container_mounts(given, given.spec.containers[0], mounted, {}))

    for _ in range(3):  # a container that is restarted has no more
        assert await create(with_sub_paths(6, "a")) == 6
    refusal = "the 5 mounts of volumes and subPaths of this pod, the pods of namespace n have 11 on this node, 10 are"
    with pytest.raises(ContainerConfigError, match=refusal):
        await create(with_sub_paths(5, "b"))
    assert await create(with_sub_paths(4, "b")) == 4
    assert await create(with_sub_paths(10, "c", "other")) == 10
    volumes._mount_budget.forget("a")
    assert await create(with_sub_paths(6, "d")) == 6


async def test_volumes_count_before_any_of_them_is_set_up(tmp_path: Path) -> None:
    volumes = manager(tmp_path)
    volumes._mount_budget = MountBudget(lambda: 8)
    names = [f"v{n}" for n in range(3)]
    given = pod(mounting(*names), volumes=[{"name": name, "emptyDir": {"medium": "HugePages"}} for name in names])
    with pytest.raises(MountsFailed, match=r'volume "v0" : with the 3 mounts .* have 3 on this node, 2 are allowed'):
        await volumes.mount(given)
    assert not os.listdir(tmp_path)


async def test_a_pod_has_few_thousand_volumes_that_its_containers_use(tmp_path: Path) -> None:
    names = [f"v{n}" for n in range(MOST_VOLUMES + 1)]
    given = pod(mounting(*names), volumes=[{"name": name, "emptyDir": {"sizeLimit": "1"}} for name in names])
    with pytest.raises(MountsFailed, match=r'volume "v0" : the pod has 4097 volumes, 4096 are allowed'):
        await manager(tmp_path).mount(given)
    assert not os.listdir(tmp_path)
    assert not mount_budget.too_many(MOST_VOLUMES)


def test_volumes_that_are_no_mounts_do_not_count() -> None:
    volumes = [
        {"name": "disk", "emptyDir": {}},
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "host", "hostPath": {"path": "/x"}},
        {"name": "image", "image": {"reference": "a"}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "nfs", "nfs": {"server": "s", "path": "/"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    used = [{"name": name, "mountPath": f"/{name}", "subPath": "x"} for name in ("image", "disk")]
    given = pod({"name": "c", "volumeMounts": used}, init=[{"name": "i", "volumeMounts": used}], volumes=volumes)
    assert mount_budget.of_volumes(given) == ["memory", "secret", "nfs", "claim"]
    assert mount_budget.of_sub_paths(given) == 2


def test_the_list_of_mounts_is_read_once_to_remove_a_pod_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    monkeypatch.setattr(mounts, "mount_points", lambda below: reads.append(below) or [])
    (tmp_path / "pod" / "volume-subpaths").mkdir(parents=True)
    cleanup.remove_tree(tmp_path / "pod")
    assert reads == [tmp_path / "pod"] and not (tmp_path / "pod").exists()
