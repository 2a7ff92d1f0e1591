"""Wrong paths end a command with one sentence that names the path and the fix, whichever command it is."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from tests.unit.wherry.test_command_line import ALL, OWN_HELP
from wherry import main as command_line
from wherry import os_errors
from wherry.errors import WherryError
from wherry.snapshot_files import open_file

WITH_PREFIX = [
    words
    for words, found in ALL.items()
    if words
    and words[0] not in OWN_HELP
    and any(each.name == "prefix" for each in found.params)
    and not any(each.required for each in found.params)
]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """Run the command; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["wherry", *words])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    return ended.value.code


@pytest.mark.parametrize("words", WITH_PREFIX, ids=" ".join)
def test_a_file_in_place_of_the_folder_is_named(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    options = {("upgrade",): ("--check",), ("why",): ("pod/web",)}.get(words, ())
    assert run(monkeypatch, *words, *options, "--prefix", str(file)) in (1, 2)
    output = "".join(capsys.readouterr())
    assert str(file) in output and "Errno" not in output and "Traceback" not in output


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(errno.ENOENT, "x", "/a"), "/a: no such file or directory: check the path"),
        (OSError(errno.ENOSPC, "x"), "no space left on device: free space on the disk"),
        (OSError(errno.EXDEV, "x", b"/a", None, Path("/b")), "/a and /b: invalid cross-device link"),
        (TimeoutError(), "timeouterror"),
        (OSError("it went wrong"), "it went wrong"),
    ],
)
def test_an_error_of_the_system_is_a_sentence_with_the_fix(error: OSError, text: str) -> None:
    assert os_errors.sentence(error) == text


def test_output_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        try:
            assert run(monkeypatch, "config", "print", "--prefix", "/nowhere") == 1
        finally:
            os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_folder_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(WherryError, match="is no snapshot: it is not a regular file"), open_file(tmp_path):
        pass
