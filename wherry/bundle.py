"""Bundles for machines without Internet access: a tar with a manifest, Debian packages, wheels and archives of images.

The manifest is the first member and has the SHA-256 of each file. SHA256SUMS has the same hashes and that of the manifest, for
`sha256sum --check`; its own SHA-256, which `create` prints, stands for the whole bundle, also on a machine that has no Wherry
to verify the first packages with. Nothing is written by a reader before all hashes are right.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, cast

from wherry import os_errors, tar_errors
from wherry.errors import WherryError
from wherry.oci import ARCHITECTURE
from wherry.tar_errors import TAR_ERRORS

MANIFEST, SUMS = "manifest.json", "SHA256SUMS"
FORMAT, FORMAT_WITH_WHEELS = 1, 2
"""Format of a bundle without wheels, which all versions read, and with them."""
PACKAGES, WHEELS, IMAGES = "packages", "wheels", "images"
MANIFEST_BYTES = 1 << 20
"""Largest manifest that is read: thousands of files."""
_NAME = "[A-Za-z0-9][A-Za-z0-9._+-]*"
_PATH = re.compile(rf"(?:{PACKAGES}/[A-Za-z0-9][A-Za-z0-9._+~%:-]*\.deb|{WHEELS}/{_NAME}\.whl|{IMAGES}/{_NAME}\.tar)")
_DIGEST = re.compile("[0-9a-f]{64}")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """A file of a bundle."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a bundle in their order; `digest` is that of SHA256SUMS."""

    version: str
    architecture: str
    files: tuple[Member, ...]
    digest: str


Sources = Sequence[tuple[str, Path | IO[bytes]]]
"""Files of a bundle: the path in it, and the file."""


def members(sources: Sources, count: Callable[[int], None] = lambda size: None) -> list[Member]:
    """Read the files of a bundle that is to be written, and count what was read; raises WherryError.

    A file that is open stays open.
    """
    for path, _ in sources:
        if not _PATH.fullmatch(path):
            raise WherryError(f"{path} is no name in a bundle: rename the file to letters, digits and ._+~-")
    if twice := {path for path, _ in sources if [each for each, _ in sources].count(path) > 1}:
        raise WherryError(f"two files have the name {min(twice)}: rename one of them")
    return [_member(path, source, count) for path, source in sources]


def write(target: IO[bytes], sources: Sources, members: Sequence[Member], version: str) -> str:
    """Write a bundle of files that were read before, and return the SHA-256 of its SHA256SUMS; raises WherryError."""
    has_wheels = any(path.startswith(f"{WHEELS}/") for path, _ in sources)
    content = {
        "format": FORMAT_WITH_WHEELS if has_wheels else FORMAT,
        "version": version,
        "architecture": ARCHITECTURE,
        "files": [asdict(m) for m in members],
    }
    manifest = (json.dumps(content, indent=1) + "\n").encode()
    sums = _sums(manifest, members)
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in ((MANIFEST, manifest), (SUMS, sums)):
            tar.addfile(_entry(name, len(data)), io.BytesIO(data))
        for member, (_, source) in zip(members, sources, strict=True):
            with _read(source) as file:
                reader = _Hashing(file)
                try:
                    tar.addfile(_entry(member.path, member.size), reader)  # type: ignore[arg-type]
                except OSError as error:
                    raise WherryError(
                        f"{member.path} cannot be written to the bundle: {os_errors.reason(error)}"
                    ) from error
            if reader.digest() != member.sha256:
                raise WherryError(f"{member.path} changed while it was read: run the command again")
    return hashlib.sha256(sums).hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a bundle, once for all that is read of it; raises WherryError if it is no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise WherryError(f"{path} cannot be read: {os_errors.reason(error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise WherryError(f"{path} is no bundle: it is not a regular file")
    with open(descriptor, "rb") as file:
        yield file


def verify(file: IO[bytes], digest: str = "") -> Manifest:
    """Read a whole bundle and return its manifest; raises WherryError at the first file that does not match it."""
    manifest: list[Manifest] = []

    def ignore(_: Member) -> None:
        return None

    _walk(file, digest, manifest.append, ignore)
    return manifest[0]


def unpack(file: IO[bytes], manifest: Manifest, kind: str, folder: Path) -> list[Path]:
    """Write the files of a kind into a private folder and return their paths; raises WherryError if one has changed."""
    found: list[Path] = []

    def place(member: Member) -> IO[bytes] | None:
        name = member.path.removeprefix(f"{kind}/")
        if name == member.path:
            return None
        found.append(folder / name)
        return open(os.open(found[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")

    _walk(file, manifest.digest, lambda _: None, place)
    return found


class _Bounded:
    """A file of which little is read at once: tarfile reads a header's long names whole, before any hash is verified."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if size > MANIFEST_BYTES:
            raise WherryError("this is no bundle: it has a header of more than 1 MiB")
        return self._file.read(size)


def _walk(
    file: IO[bytes],
    digest: str,
    begin: Callable[[Manifest], None],
    place: Callable[[Member], IO[bytes] | None],
) -> None:
    """Read a bundle from its beginning: `place` returns where to write a member, if anywhere."""
    file.seek(0)
    try:
        with tarfile.open(fileobj=cast(IO[bytes], _Bounded(file)), mode="r:") as tar:
            manifest = _manifest(tar)
            if digest and manifest.digest != digest:
                raise WherryError(f"the bundle has the SHA-256 {manifest.digest}, not the one given")
            begin(manifest)
            for member in manifest.files:
                entry = _next(tar, member.path)
                target = place(member)
                try:
                    if entry.size != member.size or _copy(tar.extractfile(entry), target) != member.sha256:
                        raise WherryError(
                            f"{member.path} of the bundle is damaged: its SHA-256 is not that of the manifest"
                        )
                finally:
                    if target is not None:
                        target.close()
            if (more := tar.next()) is not None:
                raise WherryError(f"the bundle has a file that its manifest does not name: {more.name!r}")
    except TAR_ERRORS as error:
        raise WherryError(f"this is no bundle, or it is damaged: {tar_errors.reason(error)}") from error


def _sums(manifest: bytes, members: Sequence[Member]) -> bytes:
    """Return the content of SHA256SUMS."""
    lines = [(hashlib.sha256(manifest).hexdigest(), MANIFEST), *((member.sha256, member.path) for member in members)]
    return "".join(f"{digest}  {path}\n" for digest, path in lines).encode()


def _manifest(tar: tarfile.TarFile) -> Manifest:
    """Read manifest and SHA256SUMS; raises WherryError if they do not match."""
    entry = _next(tar, MANIFEST)
    file = tar.extractfile(entry)
    if entry.size > MANIFEST_BYTES or file is None:
        raise WherryError(f"this is no bundle: {MANIFEST} is too large")
    data = file.read()
    try:
        content = json.loads(data)
        members = tuple(Member(str(each["path"]), int(each["size"]), str(each["sha256"])) for each in content["files"])
        version, architecture = str(content["version"]), str(content["architecture"])
        number = content["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WherryError(f"this is no bundle: {MANIFEST} cannot be read") from error
    if number not in (FORMAT, FORMAT_WITH_WHEELS):
        raise WherryError(f"the bundle has format {number}; this version of Wherry reads up to {FORMAT_WITH_WHEELS}")
    for member in members:
        if not _PATH.fullmatch(member.path) or not _DIGEST.fullmatch(member.sha256):
            raise WherryError(f"this is no bundle: {MANIFEST} names {member.path!r}")
    if len({member.path for member in members}) != len(members):
        raise WherryError(f"this is no bundle: {MANIFEST} names a file twice")
    sums = _sums(data, members)
    entry = _next(tar, SUMS)
    file = tar.extractfile(entry)
    if entry.size != len(sums) or file is None or file.read() != sums:
        raise WherryError(f"{SUMS} of the bundle is not that of its manifest: the bundle is damaged or was changed")
    return Manifest(version, architecture, members, hashlib.sha256(sums).hexdigest())


def _next(tar: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    entry = tar.next()
    if entry is None or entry.name != name or not entry.isreg() or entry.issparse():
        raise WherryError(f"this is no bundle, or it is incomplete: there is no {name} where it should be")
    return entry


def _copy(source: IO[bytes] | None, target: IO[bytes] | None, count: Callable[[int], None] = lambda size: None) -> str:
    """Copy to a target, if there is one, count each block, and return the SHA-256 of all that was read."""
    digest = hashlib.sha256()
    while source is not None and (block := source.read(_BLOCK)):
        digest.update(block)
        if target is not None:
            target.write(block)
        count(len(block))
    return digest.hexdigest()


@contextmanager
def _read(source: Path | IO[bytes]) -> Iterator[IO[bytes]]:
    """Open a file, or read one that is open from its beginning."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            yield file
    else:
        source.seek(0)
        yield source


def _member(path: str, source: Path | IO[bytes], count: Callable[[int], None]) -> Member:
    try:
        with _read(source) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise WherryError(f"{source} is not a regular file")
            return Member(path, os.fstat(file.fileno()).st_size, _copy(file, None, count))
    except OSError as error:
        raise WherryError(f"{source} cannot be read: {os_errors.reason(error)}") from error


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry


class _Hashing:
    """A file whose digest is that of what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        self._digest.update(block)
        return block

    def digest(self) -> str:
        return self._digest.hexdigest()
