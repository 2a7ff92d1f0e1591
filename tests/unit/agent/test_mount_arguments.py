"""Commands of the agent that take text of an object: it never becomes an option of mount(8), mkfs(8), blkid(8) or fsck(8)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.threads import Owner
from agent.volumes import formatting, nfs
from agent.volumes.payload import VolumeError
from kube import process

OWNER = Owner("uid", "n")


@pytest.fixture
def argvs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Keep what would be run, and answer as blkid(8) does of an empty device."""
    kept: list[list[str]] = []

    async def run(argv: Sequence[str], **_: Any) -> process.Result:
        kept.append(list(argv))
        return process.Result(2 if argv[0] == "blkid" else 0, "", "")

    monkeypatch.setattr(process, "run", run)
    return kept


@pytest.mark.parametrize(
    ("server", "source"),
    [
        ("nfs.example.test", "nfs.example.test:/exports/a b"),
        ("nfs_1", "nfs_1:/exports/a b"),
        ("192.0.2.7", "192.0.2.7:/exports/a b"),
        ("2001:db8::7", "[2001:db8::7]:/exports/a b"),
        ("[2001:db8::7]", "[2001:db8::7]:/exports/a b"),
        ("fe80::7%eth0", "[fe80::7%eth0]:/exports/a b"),
    ],
)
async def test_an_nfs_source_comes_after_the_end_of_options(
    tmp_path: Path, argvs: list[list[str]], server: str, source: str
) -> None:
    await nfs.mount(server, "/exports/a b", tmp_path / "v", ("nolock",), read_only=True, owner=OWNER)
    assert argvs == [["mount", "-t", "nfs", "-o", "ro,nolock", "--", source, str(tmp_path / "v")]]


@pytest.mark.parametrize(
    ("server", "export"),
    [
        ("-iT/tmp/x", "/fstab"),
        ("--all", "/"),
        ("[-iT]", "/"),
        ("-o::1", "/"),
        ("a b", "/"),
        ("a\n", "/"),
        ("a,b", "/"),
        ("a/b", "/"),
        ("::1%a b", "/"),
        ("", "/"),
        ("a", "exports"),
        ("a", "/x\ny"),
        ("a", "/x\0y"),
    ],
)
async def test_no_other_server_or_path_reaches_mount(
    tmp_path: Path, argvs: list[list[str]], server: str, export: str
) -> None:
    with pytest.raises(VolumeError, match=r"nfs (server|path) .* must be"):
        await nfs.mount(server, export, tmp_path / "v", (), read_only=False, owner=OWNER)
    assert argvs == [] and not (tmp_path / "v").exists()


async def test_a_device_comes_after_the_end_of_options(tmp_path: Path, argvs: list[list[str]]) -> None:
    await formatting.mount("/dev/none", tmp_path / "v", "", (), read_only=False, owner=OWNER)
    assert [argv[0] for argv in argvs] == ["blkid", "mkfs.ext4", "mount"]
    for argv in argvs:
        assert argv[argv.index("--") + 1] == "/dev/none", argv


@pytest.mark.parametrize(
    ("device", "kind", "refusal"),
    [
        ("-a", "ext4", "must be absolute"),
        ("/dev/none\nTYPE=ext4", "ext4", "control characters"),
        ("/dev/none", "/../x", "no type of"),
        ("/dev/none", "-x", "no type of"),
    ],
)
async def test_no_other_device_or_type_reaches_a_command(
    tmp_path: Path, argvs: list[list[str]], device: str, kind: str, refusal: str
) -> None:
    with pytest.raises(VolumeError, match=refusal):
        await formatting.mount(device, tmp_path / "v", kind, (), read_only=False, owner=OWNER)
    assert argvs == []
