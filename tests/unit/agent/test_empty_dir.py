"""Size limits of emptyDirs in memory, and their huge page sizes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agent.volumes import empty_dir, mounts
from agent.volumes.payload import VolumeError
from kube.api import core_v1
from tests.unit.agent.pods import pod

MIB = 1 << 20


def sized(**limits: str) -> dict[str, Any]:
    return {"name": "main", "resources": {"limits": {name.replace("_", "-"): text for name, text in limits.items()}}}


@pytest.mark.parametrize(
    ("limit", "memory", "node", "size"),
    [
        (None, None, 0, 0),
        (None, None, 100, 100),
        (None, "64Mi", 32, 32),  # the node has less than the pod may use
        (None, "64Mi", 1 << 30, 64),
        ("16Mi", "64Mi", 1 << 30, 16),
        ("128Mi", "64Mi", 1 << 30, 64),
        ("16Mi", None, 1 << 30, 16),
    ],
)
def test_what_is_in_memory_is_no_larger_than_what_the_pod_may_use(
    limit: str | None, memory: str | None, node: int, size: int
) -> None:
    source = core_v1.EmptyDirVolumeSource(medium="Memory", size_limit=limit)
    given = pod(sized(memory=memory) if memory else "main")
    found = empty_dir.memory_size(source, given, node * (MIB if node < 1 << 20 else 1))
    assert found == size * MIB


@pytest.mark.parametrize(
    ("medium", "limits", "size"),
    [
        ("HugePages", {"hugepages_2Mi": "4Mi"}, "2Mi"),
        ("HugePages", {"hugepages_1Gi": "1Gi"}, "1Gi"),
        ("HugePages-2Mi", {"hugepages_2Mi": "4Mi", "hugepages_1Gi": "1Gi"}, "2Mi"),
        ("HugePages-1024Mi", {"hugepages_1Gi": "1Gi"}, "1Gi"),
    ],
)
def test_huge_pages_are_of_the_size_that_is_requested(medium: str, limits: dict[str, str], size: str) -> None:
    assert empty_dir.page_size(medium, pod(sized(**limits))) == size


@pytest.mark.parametrize(
    ("medium", "limits", "message"),
    [
        ("HugePages", {"hugepages_2Mi": "4Mi", "hugepages_1Gi": "1Gi"}, "requests multiple huge page sizes"),
        ("HugePages", {}, "no container requests huge pages"),
        ("HugePages-1Gi", {"hugepages_2Mi": "4Mi"}, "no container requests huge pages of this size"),
    ],
)
def test_a_size_that_is_not_clear_is_refused(medium: str, limits: dict[str, str], message: str) -> None:
    with pytest.raises(VolumeError, match=message):
        empty_dir.page_size(medium, pod(sized(**limits)))


class Cut(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("at", range(4))
def test_a_folder_that_was_begun_by_an_agent_that_was_killed_is_open_to_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    target, given = tmp_path / "volumes" / "v", pod("main")
    given.spec.security_context = core_v1.PodSecurityContext(fs_group=os.getgid())
    steps = iter(range(100))

    def cut(real: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            if next(steps) >= at:
                raise Cut
            return real(*arguments, **options)

        return step

    with monkeypatch.context() as patched:
        for where, name in ((Path, "chmod"), (os, "chown"), (Path, "rename")):
            patched.setattr(where, name, cut(getattr(where, name)))
        with pytest.raises(Cut):
            empty_dir.make(target, core_v1.EmptyDirVolumeSource(), given, 0, mounts.MountTable(tmp_path))
    empty_dir.make(target, core_v1.EmptyDirVolumeSource(), given, 0, mounts.MountTable(tmp_path))
    assert stat.S_IMODE(target.stat().st_mode) == 0o2777 and list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(("group", "mode"), [(None, 0o1777), (os.getgid(), 0o3777)])
def test_a_folder_in_memory_has_the_sticky_bit_of_a_tmpfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int | None, mode: int
) -> None:
    monkeypatch.setattr(mounts, "mount_tmpfs", lambda *_, **__: None)
    given = pod("main")
    given.spec.security_context = core_v1.PodSecurityContext(fs_group=group)
    empty_dir.make(tmp_path / "v", core_v1.EmptyDirVolumeSource(medium="Memory"), given, 0, mounts.MountTable(tmp_path))
    assert stat.S_IMODE((tmp_path / "v").stat().st_mode) == mode
