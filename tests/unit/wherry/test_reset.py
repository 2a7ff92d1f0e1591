"""The processes that `wherry reset` ends."""

from __future__ import annotations

import signal
import tracemalloc
from pathlib import Path

import pytest

from wherry import reset
from wherry.settings import Settings


def test_processes_with_very_long_command_lines_are_ended_by_their_cgroup_and_cost_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings()
    shim = b"/usr/bin/containerd-shim-runc-v2\0-address\0" + bytes(settings.layout.containerd_socket) + b"\0"
    pod = b"0::" + settings.layout.cgroup.rstrip("/").encode() + b"/kubepods/besteffort/pod1/c\n"
    long = 1 << 30
    for pid, name, line, length, cgroup in (
        (1, b"init", b"init\0", 0, b"0::/\n"),
        (2, b"containerd-shim", shim, 0, b"0::/\n"),
        (3, b"sleep", shim, 0, b"0::/\n"),
        (4, b"containerd-shim", shim, long, b"0::/\n"),
        (5, b"containerd-shim", shim, long, pod),
        (6, b"containerd-shim", shim, 0, b"0::/\n"),
    ):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "comm").write_bytes(name + b"\n")
        (folder / "status").write_bytes(b"Uid:\t1000\t0\t0\t0\n" if pid == 6 else b"Uid:\t0\t0\t0\t0\n")
        (folder / "cgroup").write_bytes(cgroup)
        with open(folder / "cmdline", "wb") as file:
            file.write(line)
            file.truncate(max(length, len(line)))
    ended: list[tuple[int, int]] = []
    monkeypatch.setattr(reset, "_PROC", tmp_path)
    monkeypatch.setattr(reset.os, "kill", lambda pid, number: ended.append((pid, number)))
    tracemalloc.start()
    try:
        reset._end_processes(settings)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sorted(ended) == [(2, signal.SIGKILL), (5, signal.SIGKILL)]
    assert peak < 4 << 20
