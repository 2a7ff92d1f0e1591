"""Saved files: a header with a version before the contents, and one sentence for a file that cannot be used."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from wherry.testing.errors import ClusterError
from wherry.testing.saving import file_format


def test_what_was_written_is_read_and_only_its_owner_can(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file_format.write(path, "cluster", {"a": [1]})
    assert file_format.read(path, "cluster", dict[str, list[int]]) == {"a": [1]}
    assert path.stat().st_mode & 0o777 == 0o600


NEWER = b'{"wherry_testing":"cluster","format":9,"version":"7.1.0"}\n{}\n'
OTHER = b'{"wherry_testing":"history","format":1,"version":"0.2.0"}\n{}\n'
CUT = b'{"wherry_testing":"cluster","format":1,"version":"0.2.0"}\n{"a":'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"apiVersion: v1\n", "is not a saved cluster, or is damaged: Not a gzipped file"),
        (gzip.compress(CUT + b"1}")[:-4], "is not a saved cluster, or is damaged: Compressed file ended"),
        (gzip.compress(b"{}\n{}\n"), "is not a saved cluster: it has no header of one"),
        (gzip.compress(NEWER), r"was written by Wherry 7\.1\.0 in format 9: Wherry \S+ reads up to 1$"),
        (gzip.compress(OTHER), "is the history of a test, not a saved cluster$"),
        (gzip.compress(CUT), "is damaged: "),
        (gzip.compress(CUT + b"[" * 100_000), "is damaged: "),
        (gzip.compress(b"[" * 4000), "is not a saved cluster: it has no header of one"),
        (gzip.compress(CUT + b'"b"}'), r"is damaged: \[\.\.\.\]: write a whole number, not a text$"),
    ],
    ids=[
        "YAML",
        "cut",
        "no header",
        "newer format",
        "other content",
        "cut JSON",
        "deep JSON",
        "deep header",
        "wrong type",
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(ClusterError, match=message) as caught:
        file_format.read(path, "cluster", dict[str, int])
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_a_path_that_cannot_be_read_or_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="none cannot be read: no such file or directory: check the path"):
        file_format.read(tmp_path / "none", "cluster", dict[str, int])
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="cannot be written: "):
        file_format.write(tmp_path / "file" / "below", "cluster", {})


def test_a_file_that_is_too_large_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_format, "MOST_BYTES", 100)
    file_format.write(tmp_path / "file", "cluster", {"a": "b" * 200})
    with pytest.raises(ClusterError, match="has more than 100 bytes"):
        file_format.read(tmp_path / "file", "cluster", dict[str, str])
