from __future__ import annotations

from pathlib import Path

import pytest

from kube import process_files


def test_a_command_line_of_any_length_costs_no_more_than_the_limit(tmp_path: Path) -> None:
    (tmp_path / "cmdline").write_bytes(b"sleep\x0060\0")
    assert process_files.command_line(tmp_path) == b"sleep\x0060\0"
    (tmp_path / "cmdline").write_bytes(b"x" * process_files.LONGEST_COMMAND_LINE)
    assert len(process_files.command_line(tmp_path)) == process_files.LONGEST_COMMAND_LINE
    with open(tmp_path / "cmdline", "ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="longer than 65536 bytes"):
        process_files.command_line(tmp_path)


def test_a_name_may_be_of_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "comm").write_bytes(b"a) R\xff\n")
    (tmp_path / "stat").write_bytes(b"7 (a) R\xff) S 1 7\n")
    assert process_files.name(tmp_path) == b"a) R\xff"
    assert process_files.stat(tmp_path) == [b"S", b"1", b"7"]
