"""Wrong paths end a command with one sentence that names the path and the fix, whichever command it is."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.errors import StatusError, Unreachable
from kube.process import CommandError
from tests.unit.wherry.test_command_line import ALL, OWN_HELP
from wherry import cluster, membership, os_errors, tokens
from wherry import main as command_line
from wherry.errors import WherryError
from wherry.settings import Settings
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
        (OSError(errno.ENOSPC, "x"), "no space left on device: the disk is full, free space on it"),
        (OSError(errno.EXDEV, "x", b"/a", None, Path("/b")), "/a and /b: invalid cross-device link"),
        (TimeoutError(), "timed out"),
        (OSError("it went wrong"), "it went wrong"),
    ],
)
def test_an_error_of_the_system_is_a_sentence_with_the_fix(error: OSError, text: str) -> None:
    assert os_errors.sentence(error) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            StatusError(403, "Forbidden", 'secrets is forbidden: User "nobody" cannot list it'),
            "secrets is forbidden: User",
        ),
        (Unreachable("cannot reach the API server at https://a"), "cannot reach the API server at https://a"),
        (CommandError(["ctr", "x"], "exit status 1: no such image"), "ctr x: exit status 1: no such image"),
        (WherryError("there is no token"), "there is no token"),
        (
            OSError(errno.EROFS, "x", "/a"),
            "/a: read-only file system: mount the file system writable, or choose another",
        ),
        (
            CommandError(["ctr", "x"], "exit status 1: write /var/lib/f: no space left on device"),
            "/var/lib/f: no space left on device: the disk is full, free space on it",
        ),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "text",
)
def test_an_error_of_the_server_or_a_program_is_one_sentence(
    error: Exception, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refused(client: object) -> list[tokens.Known]:
        raise error

    @contextlib.asynccontextmanager
    async def admin(settings: Settings) -> AsyncIterator[None]:
        yield None

    Settings(prefix=str(tmp_path), node_name="n").save()
    monkeypatch.setattr(membership, "root", lambda: None)
    monkeypatch.setattr(cluster, "admin", admin)
    monkeypatch.setattr(tokens, "known", refused)
    assert run(monkeypatch, "token", "list", "--prefix", str(tmp_path)) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("wherry: ") and text in shown.err and len(shown.err.splitlines()) == 1 and not shown.out


def test_a_full_disk_of_a_database_is_named(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("PRAGMA max_page_count = 2")
        database.execute("CREATE TABLE a (b)")
        with pytest.raises(sqlite3.OperationalError) as caught:
            database.execute("INSERT INTO a VALUES (zeroblob(100000))")
    assert os_errors.text(caught.value) == "database or disk is full: the disk is full, free space on it"
    assert os_errors.text(WherryError("a")) == "a"


def test_a_fix_is_not_repeated() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        once = os_errors.with_fix(f"ctr: write a: {os.strerror(number)}\n")
        assert once.count(":") == 3 and os_errors.with_fix(once) == once
    assert os_errors.with_fix("it went wrong") == "it went wrong"


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
