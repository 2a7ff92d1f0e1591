"""Limits of cgroups: read back, covered by larger ones, and refused by the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cgroups import cgroupfs
from agent.cgroups.cgroupfs import CgroupFS, Limits


def lay(mount: Path, v2: bool, quota: str, memory: str) -> CgroupFS:
    files = (
        {
            "pod/cpu.max": f"{quota} 50000",
            "pod/memory.max": memory,
            "pod/memory.current": "77",
            "cgroup.controllers": "",
        }
        if v2
        else {
            "cpu/pod/cpu.cfs_quota_us": quota,
            "cpu/pod/cpu.cfs_period_us": "50000",
            "memory/pod/memory.limit_in_bytes": memory,
            "memory/pod/memory.usage_in_bytes": "77",
        }
    )
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text + "\n")
    return CgroupFS(mount)


@pytest.mark.parametrize(("v2", "quota", "memory"), [(True, "max", "max"), (False, "-1", "9223372036854771712")])
def test_limits_are_read_and_none_is_0(tmp_path: Path, v2: bool, quota: str, memory: str) -> None:
    fs = lay(tmp_path, v2, quota, memory)
    assert fs.read("pod") == Limits(cpu_period=50_000)
    fs = lay(tmp_path, v2, "20000", "4096")
    assert fs.read("pod") == Limits(cpu_quota=20_000, cpu_period=50_000, memory=4096)
    assert fs.memory_used("pod") == 77
    assert fs.read("gone") == Limits() and fs.memory_used("gone") == 0


def test_larger_limits_cover_both() -> None:
    wanted = Limits(cpu_shares=9, cpu_quota=20_000, memory=4096, pids=7)
    assert wanted.covering(Limits(cpu_quota=20_000, cpu_period=50_000, memory=1)) == Limits(
        cpu_shares=9, cpu_quota=40_000, memory=4096, pids=7
    )
    assert wanted.covering(Limits(cpu_quota=1, memory=8192)).memory == 8192
    assert wanted.covering(Limits()) == Limits(cpu_shares=9, pids=7), "no limit is the largest"
    assert Limits(memory=4096).covering(Limits(memory=4096, cpu_quota=1)) == Limits(memory=4096)


@pytest.mark.parametrize("v2", [True, False])
def test_a_refused_limit_is_an_error_only_where_it_is_asked_for(
    tmp_path: Path, v2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = lay(tmp_path, v2, "20000", "4096")
    (tmp_path / "pids").mkdir()
    write = Path.write_text

    def refuse(self: Path, text: str) -> int:
        if self.name.startswith("memory."):
            raise OSError(16, "Device or resource busy")
        return write(self, text)

    monkeypatch.setattr(cgroupfs.Path, "write_text", refuse)
    fs.ensure("pod", Limits(memory=1024))
    with pytest.raises(OSError, match="busy"):
        fs.ensure("pod", Limits(memory=1024), strict=True)
