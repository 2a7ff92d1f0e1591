"""Chains of links that a pod makes in its volume or log folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agent import symlinks
from agent.server.log_query import _first
from agent.server.system_logs import look_up
from agent.volumes import cleanup, hostpath, mounts, subpath


def chain(folder: Path, count: int) -> str:
    """Make links that lead to each other and at last to the folder `end`; return the first's name."""
    (folder / "end").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"l{number}").symlink_to(f"l{number + 1}" if number + 1 < count else "end")
    return "l0"


@pytest.mark.parametrize(
    "path", ["a/b", "a/../a/./b", "up/a/b", "up/missing/b/../c", "absolute/b", "a//b/", "loop/../a"]
)
def test_a_path_is_resolved_as_the_kernel_does(tmp_path: Path, path: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "up").symlink_to("a/up")
    (tmp_path / "absolute").symlink_to(tmp_path / "up" / "a")
    if "loop" not in path:
        assert symlinks.resolve(tmp_path / path) == Path(os.path.realpath(tmp_path / path))
        return
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        symlinks.resolve(tmp_path / path)


@pytest.mark.parametrize(
    ("count", "followed"), [(symlinks.MAX_LINKS, True), (symlinks.MAX_LINKS + 1, False), (1200, False)]
)
def test_as_many_links_are_followed_as_the_kernel_follows(tmp_path: Path, count: int, followed: bool) -> None:
    path = tmp_path / chain(tmp_path, count)
    if followed:
        assert path.stat() and symlinks.resolve(path) == tmp_path / "end"
        return
    for look in (os.stat, symlinks.resolve):
        with pytest.raises(OSError) as raised:
            look(path)
        assert raised.value.errno == errno.ELOOP


def test_a_long_chain_of_links_is_an_error_wherever_pods_make_links(tmp_path: Path) -> None:
    name = chain(tmp_path / "volume", 1200)
    with pytest.raises(OSError, match="Too many levels"):
        subpath.bind(tmp_path / "volume", name, tmp_path / "target", mounts.MountTable(tmp_path))
    with pytest.raises(OSError, match="Too many levels"):
        look_up(tmp_path / "volume", name)
    assert _first(tmp_path / "volume", [name]) is None


def test_a_host_path_may_be_as_deep_as_a_path_can_name(tmp_path: Path) -> None:
    path = tmp_path / "top" / ("d/" * 1900)
    try:
        assert hostpath.prepare(str(path), "DirectoryOrCreate") == path and path.is_dir()
    finally:
        cleanup.remove_tree(tmp_path / "top")  # pytest's own removal recurses


@pytest.mark.parametrize("parts", [2048, 300_000])
def test_a_path_is_at_most_as_long_as_the_kernel_allows(
    tmp_path: Path, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(os, "readlink", lambda path: _no_link(looked, path))
    for function in (
        lambda: symlinks.resolve(tmp_path / ("a/" * parts)),
        lambda: subpath.bind(tmp_path, "a/" * parts, tmp_path / "target", mounts.MountTable(tmp_path)),
        lambda: look_up(tmp_path, "a/" * parts),
    ):
        with pytest.raises(OSError) as raised:
            function()
        assert raised.value.errno == errno.ENAMETOOLONG and len(str(raised.value)) < 100
    assert len(looked) < 100, "only the volume's own path is looked at"


def _no_link(looked: list[str], path: str) -> str:
    looked.append(path)
    raise OSError(errno.EINVAL, "no link")


def test_links_together_lead_through_a_limited_number_of_parts(tmp_path: Path) -> None:
    (tmp_path / "end").mkdir()
    for number in range(symlinks.MAX_LINKS):
        target = f"l{number + 1}" if number + 1 < symlinks.MAX_LINKS else "end"
        (tmp_path / f"l{number}").symlink_to("end/../" * 200 + target)
    with pytest.raises(OSError) as raised:
        symlinks.resolve(tmp_path / "l0")
    assert raised.value.errno == errno.ENAMETOOLONG
    assert symlinks.resolve(tmp_path / f"l{symlinks.MAX_LINKS - 9}") == tmp_path / "end"
