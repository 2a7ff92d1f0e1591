"""Archives whose headers tarfile cannot read, and damaged wheels: the error names the file, and there is no traceback."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support import bundle_files
from wherry import bundle, bundle_sources
from wherry.errors import WherryError


def member(name: str, data: bytes, kind: bytes = tarfile.REGTYPE, size: bytes = b"") -> bytes:
    """Return a member; `size` is the raw field of the header."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, len(data)
    head = bytearray(entry.tobuf(tarfile.USTAR_FORMAT))
    if size:
        head[124:136] = size
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + data.ljust(-(-len(data) // 512) * 512, b"\0")


def extended(key: str, value: str, kind: bytes = tarfile.XHDTYPE) -> bytes:
    record = f" {key}={value}\n"
    length = next(size for size in range(len(record), len(record) + 9) if size == len(record) + len(str(size)))
    return member("././@PaxHeader", f"{length}{record}".encode(), kind)


HUGE, NEGATIVE = b"\x80" + b"\x7f" * 11, b"\xff" * 12
HEADERS = {
    "chain": b"".join(extended("a", "b") for _ in range(5000)),
    "chain of Solaris": b"".join(extended("a", "b", tarfile.SOLARIS_XHDTYPE) for _ in range(5000)),
    "chain of long names": member("././@LongLink", b"x\0", tarfile.GNUTYPE_LONGNAME) * 5000,
    "sparse map": extended("GNU.sparse.map", "x,y"),
    "digits": extended("GNU.sparse.map", "1" * 5000),
    "sparse size": extended("GNU.sparse.size", "z"),
    "real size": extended("GNU.sparse.realsize", "q"),
    "huge": member("a", b"", size=HUGE),
    "huge header": member("a", b"b", tarfile.XHDTYPE, HUGE),
    "large header": member("a", b"b", tarfile.XHDTYPE, b"\x80" + (1 << 45).to_bytes(11)),
    "negative": member("a", b"", size=NEGATIVE),
    "negative header": member("a", b"b", tarfile.XHDTYPE, NEGATIVE),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_headers_that_cannot_be_read_are_errors_of_the_archive(header: bytes, tmp_path: Path) -> None:
    data = header + member("manifest.json", b"{}") + b"\0" * 1024
    with pytest.raises(WherryError, match="this is no bundle"):
        bundle.verify(io.BytesIO(data))
    images = tmp_path / "a.tar"
    images.write_bytes(header + member("other", b"{}") + b"\0" * 1024)
    with pytest.raises(WherryError, match=r"a\.tar is no archive of images: [^ ]"):
        bundle_sources.place(images)
    package = tmp_path / "a.deb"
    members = {"debian-binary": b"2.0\n", "control.tar": data, "data.tar": b"?"}
    package.write_bytes(bundle_files.archive(members))
    with pytest.raises(WherryError, match=r"a\.deb is no Debian package: it"):
        bundle_sources.place(package)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_data_of_a_wheel_are_its_error(compression: int, tmp_path: Path) -> None:
    made, chance = io.BytesIO(), random.Random(compression)
    with zipfile.ZipFile(made, "w", compression) as wheel:
        wheel.writestr("a-1.dist-info/WHEEL", "Tag: py3-none-any\n" * 50)
    for _ in range(200):
        data = bytearray(made.getvalue())
        data[chance.randrange(50, len(data))] ^= 1 << chance.randrange(8)
        (tmp_path / "a.whl").write_bytes(data)
        try:
            bundle_sources.place(tmp_path / "a.whl")
        except WherryError as error:
            assert "a.whl" in str(error)
