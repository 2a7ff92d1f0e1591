"""`wherry support-bundle` without a cluster: its target, and what it does about items that fail or are large."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wherry import support_bundle
from wherry.errors import WherryError
from wherry.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(prefix=str(tmp_path / "prefix"), node_name="n1")


Collected = list[str]


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Collected:
    """Have one item collected; with the times that it was."""
    times = Collected()

    async def item() -> str:
        times.append("item")
        return "text"

    monkeypatch.setattr(support_bundle, "_of_wherry", lambda settings, options: {"item": item})
    monkeypatch.setattr(support_bundle, "_of_machine", lambda settings: {})
    monkeypatch.setattr(support_bundle, "_of_cluster", lambda settings: {})
    return times


def texts(path: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            yield member.name.partition("/")[2], file.read().decode()


async def test_a_target_that_cannot_be_written_is_refused_before_anything_is_collected(
    settings: Settings, collected: Collected, tmp_path: Path
) -> None:
    (tmp_path / "there").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name, problem in {
        "none/a.tgz": "there is no folder",
        "there/a.tgz": "there is no folder",
        "there": "exists: remove it",
        "dangling": "exists: remove it",
        "prefix": "prefix is a folder: name a file in it",
    }.items():
        (tmp_path / "prefix").mkdir(exist_ok=True)
        with pytest.raises(WherryError, match=problem):
            await support_bundle.create(settings, tmp_path / name, {})
    assert not collected
    made = await support_bundle.create(settings, tmp_path / "a.tgz", {})
    assert made == tmp_path / "a.tgz" and dict(texts(made)) == {"item": "text"}


async def test_a_bundle_whose_target_cannot_be_written_after_all_is_kept(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collected: Collected
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    async def removing() -> str:
        folder.rmdir()
        return "text"

    monkeypatch.setattr(support_bundle, "_of_wherry", lambda settings, options: {"item": removing})
    with pytest.raises(WherryError, match=r"a\.tgz.*: the bundle is .*support/wherry-support-n1-.*tar\.gz instead$"):
        await support_bundle.create(settings, folder / "a.tgz", {})
    [kept] = (settings.layout.state / "support").glob("*.tar.gz")
    assert dict(texts(kept)) == {"item": "text"} and kept.stat().st_mode & 0o777 == 0o600
