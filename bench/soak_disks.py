"""Disks of a soak's cluster, each mounted where a daemon has its files: the store's, the agent's and containerd's.

Each is ext4 on a thin image (tests/support/disks.py), so that one disk can be full, frozen, or fail to write new blocks: writes
succeed then and fsync reports the loop device's error, ENOSPC or EIO by the kernel's version.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.disks import MI, FailingDisk, SmallDisk, failing_disk
from wherry.layout import Layout

KUBELET = (
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionPressureTransitionPeriod: 10s\n"
)
"""Pods are scheduled again 10 s after a disk has space, instead of five minutes."""


@dataclass(frozen=True)
class Size:
    """Size of a disk in bytes, and its inodes."""

    size: int
    inodes: int


SIZES = {"store": Size(192 * MI, 1024), "agent": Size(256 * MI, 16384), "containerd": Size(448 * MI, 32768)}
"""Disks by the daemon that writes to them; with 60 pods none is fuller than half."""


class Disk:
    """A mounted disk with the faults that it can have, and the call that ends each; ending twice is no error."""

    def __init__(self, device: FailingDisk) -> None:
        self.path, self.fail, self.heal = device.path, device.fail, device.heal
        space = SmallDisk(device.path)
        self.fill, self.free = space.fill, space.free

    def freeze(self) -> None:
        """Have every write and fsync wait.

        Freezing writes what is cached first, and fails once for a write that failed in an earlier fault and that no fsync
        has reported since.
        """
        command = ["fsfreeze", "--freeze", str(self.path)]
        if subprocess.run(command, check=False, capture_output=True, timeout=60).returncode:
            subprocess.run(command, check=True, timeout=60)

    def thaw(self) -> None:
        """Let writes continue."""
        subprocess.run(["fsfreeze", "--unfreeze", str(self.path)], check=False, capture_output=True, timeout=60)


@contextlib.contextmanager
def disks(images: Path, prefix: Path) -> Iterator[dict[str, Disk]]:
    """Mount the disks below the folder of a cluster that is to be brought up; the images are elsewhere.

    `wherry reset` unmounts what is below its folders, and then removes the files in them.
    """
    layout = Layout(prefix)
    places = {"store": layout.state / "control", "agent": layout.kubelet, "containerd": layout.containerd_root}
    with contextlib.ExitStack() as stack:
        made = {}
        for name, wanted in SIZES.items():
            (images / name).mkdir()
            device = failing_disk(images / name, wanted.size, path=places[name], inodes=wanted.inodes)
            made[name] = Disk(stack.enter_context(device))
            stack.callback(made[name].thaw)
        layout.kubelet_drop_ins.mkdir(parents=True)
        (layout.kubelet_drop_ins / "soak.conf").write_text(KUBELET)
        yield made
