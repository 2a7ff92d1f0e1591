"""A bundle is made of whole files of the kinds that their names say, for this CPU; the error names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support import bundle_files
from wherry import bundle_sources
from wherry.errors import WherryError
from wherry.main import app
from wherry.oci import ARCHITECTURE


def test_whole_files_are_placed_by_their_kind(tmp_path: Path) -> None:
    own = f"cp311-cp311-manylinux_2_17_{bundle_sources._PLATFORMS.get(ARCHITECTURE, ARCHITECTURE)}"
    made = [
        bundle_files.package(tmp_path / "a_1_all.deb"),
        bundle_files.package(tmp_path / "b_1.deb", architecture=ARCHITECTURE),
        bundle_files.wheel(tmp_path / "c-1-py3-none-any.whl"),
        bundle_files.wheel(tmp_path / f"d-1-{own}.whl", own),
        bundle_files.images(tmp_path / "e.tar"),
        bundle_files.images(tmp_path / "f.tar", "./manifest.json"),
    ]
    folders = ["packages", "packages", "wheels", "wheels", "images", "images"]
    assert [bundle_sources.place(file) for file in made] == [
        f"{folder}/{file.name}" for folder, file in zip(folders, made, strict=True)
    ]


def test_the_control_part_of_a_package_may_be_compressed_in_another_way(tmp_path: Path) -> None:
    members = {"debian-binary": b"2.0\n", "control.tar.zst": b"?", "data.tar.zst": b"?"}
    (tmp_path / "a.deb").write_bytes(bundle_files.archive(members))
    assert bundle_sources.place(tmp_path / "a.deb") == "packages/a.deb"


@pytest.mark.parametrize(
    ("name", "make", "problem"),
    [
        ("a.deb", lambda path: path.write_bytes(b""), "is no Debian package: it is no ar archive"),
        ("a.deb", lambda path: path.write_bytes(Path("/bin/true").read_bytes()), "it is no ar archive"),
        ("a.deb", lambda path: cut(bundle_files.package(path)), "it is incomplete"),
        ("a.deb", lambda path: cut(bundle_files.package(path), leave=100), "it is damaged or incomplete"),
        ("a.deb", lambda path: path.write_bytes(bundle_files.archive({"a.o": b"x"})), "it has other parts than"),
        ("a.deb", lambda path: bundle_files.package(path, architecture="s390x"), "it is for s390x, and this machine"),
        ("a.deb", lambda path: bundle_files.package(path, fields="Package: a\n"), "its control file has no Version"),
        ("a.whl", lambda path: path.write_bytes(b""), "is no wheel: File is not a zip file"),
        ("a.whl", lambda path: cut(bundle_files.wheel(path)), "is no wheel"),
        ("a.whl", lambda path: damage(bundle_files.wheel(path)), "is no wheel: its file a/__init__.py is damaged"),
        ("a.whl", lambda path: bundle_files.wheel(path, "cp311-cp311-linux_s390x"), "it is for linux_s390x"),
        ("a.tar", lambda path: path.write_bytes(b""), "is no archive of images: empty file"),
        ("a.tar", lambda path: path.write_bytes(bytes(10240)), "it has neither an index.json"),
        ("a.tar", lambda path: bundle_files.images(path, "other.json"), "it has neither an index.json"),
        ("a.tar", lambda path: cut(bundle_files.images(path), leave=2000), "is no archive of images"),
        ("a.tar", lambda path: path.mkdir(), "it is not a regular file"),
        ("a.tar", lambda path: None, "cannot be read: No such file or directory"),
        ("a.rpm", lambda path: path.write_bytes(b""), "neither a Debian package (.deb) nor a wheel (.whl) nor"),
    ],
)
def test_other_files_are_refused_before_a_bundle_is_written(
    tmp_path: Path, name: str, make: Callable[[Path], object], problem: str
) -> None:
    make(tmp_path / name)
    done = CliRunner().invoke(app, ["bundle", "create", str(tmp_path / "out"), str(tmp_path / name)])
    assert isinstance(done.exception, WherryError) and problem in str(done.exception), done.exception
    assert str(tmp_path / name) in str(done.exception) and not (tmp_path / "out").exists()


def cut(file: Path, leave: int = -20) -> None:
    file.write_bytes(file.read_bytes()[:leave])


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[data.index(b"x = 1")] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("words", [(), ("--image", "x")], ids=["files", "an image"])
def test_a_folder_that_takes_no_files_is_named_by_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    file = bundle_files.package(tmp_path / "a.deb")
    done = CliRunner().invoke(app, ["bundle", "create", "/proc/x.tar", str(file), *words])
    assert isinstance(done.exception, WherryError) and "/proc/x.tar" in str(done.exception)
    assert "/proc/tmp" not in str(done.exception) and "partial" not in str(done.exception)
