"""A bug report of a machine whose disk is full or read-only, or whose API server is away."""

from __future__ import annotations

import re
import tarfile
import time
from pathlib import Path

import pytest

from tests.support.disks import SmallDisk, ext4_disk
from tests.support.stopped_installation import install, wherry

AWAY = "192.0.2.77"
NO_ANSWER = f"ip neighbour add {AWAY} lladdr 02:00:00:00:00:01 dev v0"
"""An address to which packets are sent, and from which none comes."""


def files(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {each.name.partition("/")[2]: archive.extractfile(each).read().decode() for each in archive}  # type: ignore[union-attr]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_disk_that_takes_no_files_is_reported_in_a_bundle_on_another(tmp_path: Path, *, read_only: bool) -> None:
    settings = install(tmp_path / "prefix")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with ext4_disk(settings.layout.state / "disk") as disk:
        assert isinstance(disk, SmallDisk)
        disk.read_only(on=True) if read_only else disk.fill()
        mount = f"mount --bind {disk.path} {settings.layout.state}"
        done = wherry("support-bundle", "--prefix", settings.prefix, setup=mount, TMPDIR=str(temporary))
        disk.read_only(on=False)
    assert done.returncode == 0, done.stderr
    (made,) = temporary.iterdir()
    assert done.stdout == f"{made}\n" and made.stat().st_mode & 0o777 == 0o600
    reason = (
        "read-only file system: mount the file system writable" if read_only else "the disk is full, free space on it"
    )
    # Programs that are not installed, and what is on the disk, are counted as missing.
    (collected,) = re.findall(r"[!✓] collect the state of the machine \((?:(\d+) of )?20 items", done.stderr)
    assert reason in done.stderr and int(collected or 20) > 10
    assert "overlay" in files(made)["check.yaml"]


def test_a_bundle_ends_soon_if_the_api_server_is_away(tmp_path: Path) -> None:
    settings = install(tmp_path / "prefix")
    kubeconfig = settings.layout.admin_kubeconfig
    kubeconfig.write_text(kubeconfig.read_text().replace(settings.server, f"https://{AWAY}:6443"))
    began = time.monotonic()
    done = wherry("support-bundle", tmp_path / "a.tgz", "--prefix", settings.prefix, setup=NO_ANSWER)
    assert done.returncode == 0 and time.monotonic() - began < 40, done.stderr
    assert "the cluster's objects are not in it: the API server at " in done.stderr
    found = files(tmp_path / "a.tgz")
    assert "did not answer within 10 s" in found["cluster/pods.json"] and '"healthy": false' in found["status.json"]
