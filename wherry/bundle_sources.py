"""Files that a bundle is made of, checked before it is written: the machine that it is for may have no other source of them.

A Debian package is an ar archive of control and data, a wheel a zip file, an archive of images a tar with an index. What they
contain is not unpacked, but read as far as a file that is incomplete, of another kind or for another CPU is found out.
"""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from wherry import tar_errors
from wherry.bundle import IMAGES, PACKAGES, WHEELS
from wherry.errors import WherryError
from wherry.oci import ARCHITECTURE
from wherry.tar_errors import DECOMPRESSION_ERRORS, TAR_ERRORS

_INDEXES = frozenset({"index.json", "manifest.json"})
"""Files of which an archive has one: OCI layout, docker save."""
_AR, _AR_MEMBER = b"!<arch>\n", 60
_MOST_CONTROL = 16 << 20
"""Bytes of the control part of a package, which is read into memory; usually some KiB."""
_DECODED = ("control.tar", "control.tar.gz", "control.tar.xz")
"""Compressions that Python knows; of others (zstd) the fields are not read."""
_PLATFORMS = {"amd64": "x86_64", "arm64": "aarch64"}


class _Wrong(Exception):
    """Problem of a file, as the end of a sentence about it."""


def place(file: Path) -> str:
    """Return the path of a file in a bundle, by the end of its name; raises WherryError if it is not what the name says."""
    for end, folder, kind, check in (
        (".deb", PACKAGES, "Debian package", _check_package),
        (".whl", WHEELS, "wheel", _check_wheel),
        (".tar", IMAGES, "archive of images", _check_images),
    ):
        if file.name.endswith(end):
            try:
                _check(file, check)
            except _Wrong as error:
                raise WherryError(f"{file} is no {kind}: {error}") from error
            return f"{folder}/{file.name}"
    raise WherryError(f"{file} is neither a Debian package (.deb) nor a wheel (.whl) nor an archive of images (.tar)")


def _check(file: Path, check: Callable[[IO[bytes]], None]) -> None:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise _Wrong("it is not a regular file")
        with file.open("rb") as opened:
            check(opened)
    except OSError as error:
        raise WherryError(f"{file} cannot be read: {error.strerror or error}") from error


def _check_images(file: IO[bytes]) -> None:
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            names = {entry.name.removeprefix("./") for entry in tar if entry.isreg()}
            end = tar.offset
    except TAR_ERRORS as error:
        raise _Wrong(tar_errors.reason(error)) from error
    if end > file.seek(0, io.SEEK_END):
        raise _Wrong("it is incomplete")
    if not names & _INDEXES:
        raise _Wrong("it has neither an index.json (OCI layout) nor a manifest.json (docker save)")


def _check_wheel(file: IO[bytes]) -> None:
    try:
        with zipfile.ZipFile(file) as wheel:
            found = [name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL")]
            damaged = wheel.testzip()
            lines = wheel.read(found[0]).decode().splitlines() if found else []
    except (zipfile.BadZipFile, EOFError, UnicodeError, *DECOMPRESSION_ERRORS, RuntimeError, ValueError) as error:
        raise _Wrong(str(error)) from error
    if damaged:
        raise _Wrong(f"its file {damaged} is damaged")
    if not found:
        raise _Wrong("it has no file .dist-info/WHEEL")
    platforms = [line.rpartition("-")[2] for line in lines if line.startswith("Tag:")]
    own = _PLATFORMS.get(ARCHITECTURE, ARCHITECTURE)
    if platforms and not [each for each in platforms if each == "any" or each.endswith(own)]:
        raise _Wrong(f"it is for {platforms[0]}, and this machine is {ARCHITECTURE}")


def _check_package(file: IO[bytes]) -> None:
    control, names = b"", []
    for name, data in _members(file):
        names.append(name)
        if name in _DECODED:
            control = data
    kinds = [name.partition(".")[0] for name in names]
    if names[:1] != ["debian-binary"] or kinds[1:3] != ["control", "data"]:
        raise _Wrong("it has other parts than debian-binary, control and data")
    if control:
        fields = _fields(control)
        if missing := [name for name in ("Package", "Version", "Architecture") if not fields.get(name)]:
            raise _Wrong(f"its control file has no {missing[0]}")
        if fields["Architecture"] not in ("all", ARCHITECTURE):
            raise _Wrong(f"it is for {fields['Architecture']}, and this machine is {ARCHITECTURE}")


def _members(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the names of an ar archive's members with the data of those that are small."""
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(len(_AR)) != _AR:
        raise _Wrong("it is no ar archive")
    position = len(_AR)
    while position < end:
        head = file.read(_AR_MEMBER)
        size = head[48:58].decode("ascii", "replace").strip()
        if len(head) < _AR_MEMBER or head[58:] != b"`\n" or not size.isdecimal():
            raise _Wrong("it is damaged or incomplete")
        name, length = head[:16].decode("ascii", "replace").strip().removesuffix("/"), int(size)
        position += _AR_MEMBER + length
        if position > end:
            raise _Wrong("it is incomplete")
        yield name, file.read(length) if name in _DECODED and length <= _MOST_CONTROL else b""
        position += position % 2
        file.seek(position)


def _fields(control: bytes) -> dict[str, str]:
    """Return the fields of the control file in the control part of a package."""
    try:
        with tarfile.open(fileobj=io.BytesIO(control), mode="r:*") as tar:
            entry = next((each for each in tar if each.name.removeprefix("./") == "control"), None)
            found = tar.extractfile(entry) if entry else None
            text = found.read(_MOST_CONTROL).decode() if found else ""
    except (*TAR_ERRORS, *DECOMPRESSION_ERRORS, OSError) as error:
        raise _Wrong(f"its control part cannot be read: {tar_errors.reason(error)}") from error
    pairs = (line.partition(":") for line in text.splitlines() if line[:1].strip())
    return {name: value.strip() for name, _, value in pairs}
