"""Files of another kind than a command reads are refused at once, with what is wrong with them."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from control.storage import archive
from control.storage.store import Item
from wherry import config_file, image_commands, snapshot, store_commands
from wherry.main import app
from wherry.settings import Settings


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(image_commands, "root", lambda: None)
    monkeypatch.setattr(store_commands, "root", lambda: None)
    settings = Settings(prefix=str(tmp_path / "machine"), node_name="n", runtime_endpoint="unix:///x")
    settings.save()
    return settings


def wherry(settings: Settings, *words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, [*words, "--prefix", settings.prefix], input=answer)


@pytest.mark.parametrize(
    ("path", "problem"), [("/etc", "is a folder"), ("/dev/null", "is not a regular file"), ("/none", "no such file")]
)
def test_an_archive_of_images_is_a_file(installed: Settings, path: str, problem: str) -> None:
    assert problem in str(wherry(installed, "image", "load", path).exception)


@pytest.mark.parametrize("what", ["/etc", "/dev/zero", "{tmp}/text", "/none", "s3://bucket", "folder.db"])
def test_a_restore_asks_only_about_what_is_a_snapshot(installed: Settings, tmp_path: Path, what: str) -> None:
    (tmp_path / "text").write_text("no database")
    (installed.layout.snapshots / "folder.db").mkdir(parents=True)
    done = wherry(installed, "snapshot", "restore", what.format(tmp=tmp_path), answer="y\n")
    assert done.exit_code == 1 and "Replace" not in done.output
    assert "snapshot" in str(done.exception) or "s3://BUCKET" in str(done.exception)


def test_a_restore_shows_what_it_restores_and_ends_without_consent(
    installed: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "stopped", pytest.fail)
    archive.write(tmp_path / "a.db", [Item("/registry/a", b"1", 7, 7)], 7, {})
    done = wherry(installed, "snapshot", "restore", str(tmp_path / "a.db"), answer="n\n")
    assert done.exit_code == 1 and not isinstance(done.exception, (typer.Abort, sqlite3.Error))
    assert "Replace all objects of the cluster by the 1 keys of revision 7? [y/N]" in done.output
    assert not [path for path in installed.layout.state.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("words", [("list",), ("prune",), ("delete", "a.db")], ids=" ".join)
def test_a_file_in_place_of_the_snapshot_folder_is_named(installed: Settings, words: tuple[str, ...]) -> None:
    installed.layout.state.mkdir(parents=True)
    installed.layout.snapshots.write_text("")
    done = wherry(installed, "snapshot", *words)
    assert f"{installed.layout.snapshots} is no folder" in str(done.exception)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full", "{tmp}/large"])
def test_a_configuration_file_has_an_end(installed: Settings, tmp_path: Path, path: str) -> None:
    (tmp_path / "large").write_text("#" * (config_file.MOST_BYTES + 1))
    done = wherry(installed, "config", "validate", path.format(tmp=tmp_path))
    assert "cannot be read: it has more than 1 MiB" in str(done.exception)


def test_a_configuration_file_may_come_through_a_pipe(installed: Settings) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"max-pods: 3\nnode-ip: 192.0.2.1\n")
    os.close(writer)
    try:
        done = wherry(installed, "config", "validate", f"/proc/self/fd/{reader}")
    finally:
        os.close(reader)
    assert done.exit_code == 0, done.exception
