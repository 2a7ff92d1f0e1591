from __future__ import annotations

import json
import struct
import tarfile
from pathlib import Path

import pytest

from wherry import pause


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_the_sandbox_program_is_an_executable_of_a_few_hundred_bytes(machine: str, number: int) -> None:
    program = pause.program(machine)
    assert program[:4] == b"\x7fELF"
    assert len(program) < 300
    assert struct.unpack_from("<HH", program, 16) == (2, number)
    entry, offset = struct.unpack_from("<QQ", program, 24)
    assert offset == 64
    assert entry == 0x400000 + 120
    assert struct.unpack_from("<Q", program, len(program) - 32) == (1,), "SIGCHLD's action is to be ignored"


def test_an_unknown_architecture_is_an_error_that_requires_an_image() -> None:
    with pytest.raises(NotImplementedError, match="--sandbox-image"):
        pause.program("vax")


def test_the_image_is_the_same_on_every_run(tmp_path: Path) -> None:
    pause.write_image(tmp_path / "a.tar")
    pause.write_image(tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as tar:
        index = json.loads(tar.extractfile("index.json").read())  # type: ignore[union-attr]
        (manifest,) = index["manifests"]
        assert manifest["annotations"]["io.containerd.image.name"] == pause.IMAGE
        assert f"blobs/sha256/{manifest['digest'].removeprefix('sha256:')}" in tar.getnames()


@pytest.mark.parametrize(
    ("machine", "start"), [("x86_64", "b89d000000bf0400000031f60f05"), ("aarch64", "e81480d2800080d2")]
)
def test_the_first_thing_that_the_program_does_is_to_end_tracing_by_others(machine: str, start: str) -> None:
    """prctl(PR_SET_DUMPABLE, 0)."""
    assert pause.program(machine)[120:].hex().startswith(start)
