"""The commands of docs/airgap.md for a machine without Wherry install what the trusted SHA-256 stands for, and nothing else."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wherry import bundle

SOURCES = {"packages/a_1.0+b~c%3a1_amd64.deb": b"a" * 100_000, "packages/b.deb": b"", "images/web.tar": b"image"}


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, str]:
    """A bundle and its SHA-256."""
    sources = []
    for number, (path, content) in enumerate(SOURCES.items()):
        file = tmp_path / f"source{number}"
        file.write_bytes(content)
        sources.append((path, file))
    with (tmp_path / "bundle").open("wb") as written:
        return tmp_path / "bundle", bundle.write(written, sources, bundle.members(sources), "1.2.3")


def change(path: Path, how: Callable[[dict[str, bytes]], Any]) -> None:
    """Write a bundle again after a change of its members."""
    with tarfile.open(path) as tar:
        members = {entry.name: file.read() for entry in tar if (file := tar.extractfile(entry))}
    how(members)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def documented() -> list[str]:
    """Return the commands of docs/airgap.md that unpack a bundle, verify it and install its packages."""
    page = (Path(__file__).parents[2] / "docs" / "airgap.md").read_text()
    lines = [line.strip() for line in page.splitlines() if line.startswith("    ")]
    start = next(number for number, line in enumerate(lines) if line.startswith("mkdir bundle"))
    return lines[start : start + 3]


def shell(bundle_file: Path, digest: str) -> tuple[bool, list[str]]:
    """Run the commands; return whether the verification succeeded, and what is installed then."""
    folder = bundle_file.with_name("machine")
    (folder / "bin").mkdir(parents=True)
    bundle_file.rename(folder / "airgap.tar")
    program = folder / "bin" / "apt-get"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >../installed\n')
    program.chmod(0o755)
    unpack, check, install = documented()
    assert "09d6d45e..." in check
    script = f"{unpack} || exit 3\n{check.replace('09d6d45e...', digest)} || exit 4\n{install}\n"
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    done = subprocess.run(["bash", "-c", script], cwd=folder, env={"PATH": path}, capture_output=True, text=True)
    assert done.returncode in (0, 4), done.stderr
    installed = folder / "installed"
    return done.returncode == 0, installed.read_text().splitlines() if installed.exists() else []


def test_the_commands_verify_and_install_a_bundle(made: tuple[Path, str]) -> None:
    assert shell(*made) == (True, ["install", "./packages/a_1.0+b~c%3a1_amd64.deb", "./packages/b.deb"])


def test_the_commands_refuse_a_folder_that_is_a_link(made: tuple[Path, str], tmp_path: Path) -> None:
    """The files behind it would be verified, and could be others when they are installed."""
    file, digest = made
    (tmp_path / "medium").mkdir()
    with tarfile.open(file) as tar:
        entries = [(entry, each.read()) for entry in tar if (each := tar.extractfile(entry))]
    with tarfile.open(file, "w") as tar:
        link = tarfile.TarInfo("packages")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "medium")
        tar.addfile(link)
        for entry, content in entries:
            if entry.name.startswith("packages/"):
                (tmp_path / "medium" / Path(entry.name).name).write_bytes(content)
            else:
                tar.addfile(entry, io.BytesIO(content))
    assert shell(file, digest) == (False, [])


@pytest.mark.parametrize("sums", [False, True], ids=["a package", "a package and its sum"])
def test_the_commands_refuse_a_changed_package(made: tuple[Path, str], *, sums: bool) -> None:
    def damage(members: dict[str, bytes]) -> None:
        members["packages/b.deb"] = b"evil"
        if sums:
            before, after = (hashlib.sha256(each).hexdigest().encode() for each in (b"", b"evil"))
            members["SHA256SUMS"] = members["SHA256SUMS"].replace(before, after)

    change(made[0], damage)
    assert shell(*made) == (False, [])


def test_the_commands_install_no_package_that_was_added(made: tuple[Path, str]) -> None:
    change(made[0], lambda members: members.update({"packages/evil.deb": b""}))
    accepted, installed = shell(*made)
    assert accepted and installed and not [each for each in installed if "evil" in each]
