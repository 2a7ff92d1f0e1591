"""Small files of the kinds that a bundle has, without any program."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


def package(path: Path, *, architecture: str = "all", fields: str = "Package: a\nVersion: 1\n") -> Path:
    """Write a Debian package."""
    control = _tar({"./control": f"{fields}Architecture: {architecture}\nDescription: x\n y: z\n".encode()}, "w:xz")
    members = {"debian-binary": b"2.0\n", "control.tar.xz": control, "data.tar.xz": _tar({}, "w:xz")}
    path.write_bytes(archive(members))
    return path


def archive(members: Mapping[str, bytes]) -> bytes:
    """Return an ar archive."""
    found = b"!<arch>\n"
    for name, data in members.items():
        found += f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return found


def wheel(path: Path, tag: str = "py3-none-any") -> Path:
    """Write a wheel."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/__init__.py", "x = 1\n" * 100)
        file.writestr("a-1.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
    return path


def images(path: Path, index: str = "index.json") -> Path:
    """Write an archive of images, as far as its index."""
    path.write_bytes(_tar({index: b"{}", "blobs/sha256/a": b"x" * 3000}, "w"))
    return path


def _tar(files: Mapping[str, bytes], mode: str) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return target.getvalue()
