"""A pod's /etc/hosts while containers have it mounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.pods import hosts_file
from agent.usage import machine

TEXT, SHORT, LONG = b"127.0.0.1\tlocalhost\n", b"::1\n", b"10.0.0.1\tname\n" * 9000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    hosts_file.write(tmp_path / "etc-hosts", TEXT, 0o644)
    return tmp_path / "etc-hosts"


@pytest.mark.parametrize("text", [TEXT, SHORT, LONG])
@pytest.mark.parametrize("written", [b"", SHORT, LONG, bytes(1 << 20)])
def test_a_container_that_runs_has_the_file_that_the_next_one_gets(path: Path, text: bytes, written: bytes) -> None:
    with path.open("r+b") as mounted:
        mounted.write(written)
        mounted.flush()
        hosts_file.write(path, text, 0o644)
        mounted.seek(0)
        assert mounted.read() == path.read_bytes() == text
        mounted.write(bytes(1 << 20))
        mounted.flush()
        os.fsync(mounted.fileno())
        assert machine.disk_use(path)[0] >= 1 << 20, "what a container writes into it is measured"


def test_an_unchanged_file_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.chmod(0o600)
    monkeypatch.setattr(os, "pwrite", None)
    monkeypatch.setattr(os, "ftruncate", None)
    hosts_file.write(path, TEXT, 0o644)
    assert path.read_bytes() == TEXT and path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("text", [TEXT, SHORT, LONG])
@pytest.mark.parametrize("before", [SHORT, TEXT, LONG[: 1 << 15]])
def test_a_reader_finds_either_text_at_every_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, before: bytes
) -> None:
    hosts_file.write(path, before, 0o644)
    seen = []
    for name in ("pwrite", "ftruncate"):
        call = getattr(os, name)

        def watched(*arguments: object, call=call) -> object:  # type: ignore[no-untyped-def]
            result = call(*arguments)
            seen.append(path.read_bytes().rstrip(b"\n"))
            return result

        monkeypatch.setattr(os, name, watched)
    hosts_file.write(path, text, 0o644)
    assert set(seen) <= {before.rstrip(b"\n"), text.rstrip(b"\n")}


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(TEXT)
    (tmp_path / "etc-hosts").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    for name in ("etc-hosts", "pipe"):
        with pytest.raises(OSError):
            hosts_file.write(tmp_path / name, SHORT, 0o644)
    assert (tmp_path / "target").read_bytes() == TEXT
