"""A mount whose name is no UTF-8, somebody else's or a pod's, keeps nobody from reading what is mounted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = r"""
import os, sys
from pathlib import Path
from agent.volumes import mounts
from wherry import check, reset

class Layout:
    run = kubelet = containerd_root = state = Path(sys.argv[1])

class Installed:
    layout = Layout()

folder = Path(sys.argv[1])
odd = folder / os.fsdecode(b"caf\xe9 \xff\r \\040\x85x")
for point in (odd, folder / "plain"):
    point.mkdir()
    mounts.mount_tmpfs(point)
assert mounts.is_mount_point(folder / "plain") and mounts.is_mount_point(odd)
assert not mounts.is_mounted("/dev/null")
assert "cgroups are mounted" in [found.what for found in check._kernel()]
mounts.unmount(odd)
assert mounts.mount_points(folder) == [str(folder / "plain")]
mounts.mount_tmpfs(odd)
reset._unmount(Installed())
assert mounts.mount_points(folder) == []
"""


def test_a_mount_whose_name_is_no_utf_8_is_read_and_unmounted_like_any_other(tmp_path: Path) -> None:
    argv = ["unshare", "--mount", sys.executable, "-c", SCRIPT, str(tmp_path)]  # nobody else sees these mounts
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
