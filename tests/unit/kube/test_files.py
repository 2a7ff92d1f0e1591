"""Files that are written whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube.files import write_file


def test_a_file_without_another_owner_is_written_without_the_right_to_change_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: int) -> None:
        raise PermissionError("the unit of the control plane refuses the system call")

    monkeypatch.setattr(os, "fchown", refuse)
    write_file(tmp_path / "a", b"text", 0o600)
    assert (tmp_path / "a").read_bytes() == b"text"
    with pytest.raises(PermissionError):
        write_file(tmp_path / "a", b"other", 0o640, os.getgid())
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_bytes() == b"text"
