"""The disks that a pod names itself (GCE, AWS, iSCSI, RBD), which can be on a node twice only to be read."""

from __future__ import annotations

from collections.abc import Sequence

from kube.api import core_v1

Disk = tuple[str, frozenset[str], bool]
"""Kind and name, its monitors (RBD), and whether it is mounted to read only."""
Uses = dict[tuple[str, str | None], bool]
"""By a disk's kind and name and each of its monitors (None without any): whether it is mounted to read only."""


def disks(pod: core_v1.Pod) -> list[Disk]:
    """Return the disks that a pod names itself."""
    found: list[Disk] = []
    for volume in pod.spec.volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            found.append((f"gce {gce.pd_name}", frozenset(), bool(gce.read_only)))
        elif (aws := volume.aws_elastic_block_store) is not None:
            found.append((f"aws {aws.volume_id}", frozenset(), False))
        elif (iscsi := volume.iscsi) is not None:
            found.append((f"iscsi {iscsi.iqn}", frozenset(), bool(iscsi.read_only)))
        elif (rbd := volume.rbd) is not None:
            found.append((f"rbd {rbd.pool or 'rbd'}/{rbd.image}", frozenset(rbd.monitors), bool(rbd.read_only)))
    return found


def uses(found: Sequence[Disk]) -> Uses:
    """Two disks are the same where they share a key: so uses are compared without taking them in pairs."""
    found_uses: Uses = {}
    for name, monitors, read_only in found:
        for monitor in monitors or (None,):
            found_uses[name, monitor] = found_uses.get((name, monitor), True) and read_only
    return found_uses
