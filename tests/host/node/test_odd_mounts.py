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


def test_memory_of_volumes_is_not_swapped_where_the_kernel_can_do_that(tmp_path: Path) -> None:
    script = """
import errno, sys
from pathlib import Path
from agent.volumes import mounts
point = Path(sys.argv[1])
mounts.mount_tmpfs(point, size=1 << 20, mode=0o750)
[line] = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {point} " in line]
mounts.unmount(point)
try:
    mounts._mount("tmpfs", str(point), "tmpfs", 0, "noswap")
    known = True
except OSError as error:
    assert error.errno == errno.EINVAL, error
    known = False
options = line.split()[3].split(",")
assert ("noswap" in options) == known, (line, known)
assert {"mode=750", "size=1024k"} <= set(options), line
"""
    argv = ["unshare", "--mount", sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
