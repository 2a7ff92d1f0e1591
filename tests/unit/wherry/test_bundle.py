"""Bundles are read as they were written, and everything that does not match the manifest is refused."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support import bundle_files
from wherry import bundle
from wherry.bundle import IMAGES, PACKAGES, WHEELS, Manifest, Member
from wherry.errors import WherryError
from wherry.main import app

SOURCES = {
    "packages/a_1.0+b~c%3a1_amd64.deb": b"a" * 3_000_000,
    "packages/b.deb": b"",
    "wheels/c-1.0+d-py3-none-any.whl": b"wheel",
    "images/web.tar": b"image",
}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    sources = []
    for number, (path, content) in enumerate(SOURCES.items()):
        file = tmp_path / f"source{number}"
        file.write_bytes(content)
        sources.append((path, file))
    with (tmp_path / "bundle").open("wb") as written:
        bundle.write(written, sources, bundle.members(sources), "1.2.3")
    return tmp_path / "bundle"


def verified(path: Path, digest: str = "") -> Manifest:
    with bundle.opened(path) as file:
        return bundle.verify(file, digest)


def rewritten(path: Path, change: Callable[[dict[str, bytes]], Any]) -> Path:
    """Write a bundle again after a change of its members."""
    with tarfile.open(path) as tar:
        members = {entry.name: file.read() for entry in tar if (file := tar.extractfile(entry))}
    change(members)
    other = path.with_name("other")
    with tarfile.open(other, "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return other


def manifest_with(**changed: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        content = json.loads(members["manifest.json"]) | changed
        members["manifest.json"] = json.dumps(content).encode()
        with contextlib.suppress(KeyError, TypeError):
            members["SHA256SUMS"] = bundle._sums(
                members["manifest.json"], [Member(**each) for each in content["files"]]
            )

    return change


def test_a_bundle_is_read_as_it_was_written(made: Path, tmp_path: Path) -> None:
    found = verified(made)
    assert (found.version, [member.path for member in found.files]) == ("1.2.3", list(SOURCES))
    folder = tmp_path / "unpacked"
    folder.mkdir()
    with bundle.opened(made) as file:
        packages = bundle.unpack(file, found, PACKAGES, folder)
        wheels = bundle.unpack(file, found, WHEELS, folder)
        images = bundle.unpack(file, found, IMAGES, folder)
    assert {path.name: path.read_bytes() for path in (*packages, *wheels, *images)} == {
        path.partition("/")[2]: content for path, content in SOURCES.items()
    }
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_the_sums_are_those_of_sha256sum(made: Path) -> None:
    with tarfile.open(made) as tar:
        file = tar.extractfile("SHA256SUMS")
        assert file is not None
        lines = file.read().decode().splitlines()
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        files = {"manifest.json": manifest.read(), **SOURCES}
    assert lines == [f"{hashlib.sha256(content).hexdigest()}  {path}" for path, content in files.items()]


def test_the_digest_stands_for_the_whole_bundle(made: Path) -> None:
    digest = verified(made).digest
    assert verified(made, digest).digest == digest
    with tarfile.open(made) as tar:
        file = tar.extractfile("SHA256SUMS")
        assert file is not None and hashlib.sha256(file.read()).hexdigest() == digest, "what sha256sum computes"
    other = rewritten(made, manifest_with(version="1.2.4"))
    with pytest.raises(WherryError, match=f"the bundle has the SHA-256 {verified(other).digest}, not the one given"):
        verified(other, digest)


@pytest.mark.parametrize("position", [600, 200_000, -1])
def test_a_changed_byte_is_found(made: Path, position: int) -> None:
    data = bytearray(made.read_bytes())
    with tarfile.open(made) as tar:
        start = tar.getmember("images/web.tar").offset_data if position < 0 else position
    data[start] ^= 1
    made.write_bytes(data)
    with pytest.raises(WherryError):
        verified(made)


@pytest.mark.parametrize("size", [0, 100, 512, 5_000, 1_000_000])
def test_a_part_of_a_bundle_is_refused(made: Path, size: int) -> None:
    made.write_bytes(made.read_bytes()[:size])
    with pytest.raises(WherryError, match=r"no bundle|incomplete|damaged"):
        verified(made)


FILE = {"path": "packages/b.deb", "size": 0, "sha256": hashlib.sha256(b"").hexdigest()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda members: members.pop("images/web.tar"), "there is no images/web.tar"),
        (lambda members: members.pop("manifest.json"), "there is no manifest.json"),
        (lambda members: members.update({"packages/more.deb": b""}), "does not name: 'packages/more.deb'"),
        (lambda members: members.update({"packages/b.deb": b"longer"}), "packages/b.deb of the bundle is damaged"),
        (lambda members: members.update({"images/web.tar": b"egami"}), "images/web.tar of the bundle is damaged"),
        (lambda members: members.update({"SHA256SUMS": b"anything"}), "SHA256SUMS of the bundle is not that of"),
        (lambda members: members.update({"SHA256SUMS": members["SHA256SUMS"] + b"\n"}), "SHA256SUMS of the bundle"),
        (lambda members: members.update({"manifest.json": b"[]"}), "manifest.json cannot be read"),
        (lambda members: members.update({"manifest.json": b"[" * 100_000}), "manifest.json cannot be read"),
        (lambda members: members.update({"manifest.json": b" " * (2 << 20)}), "manifest.json is too large"),
        (manifest_with(format=3), "format 3; this version of Wherry reads up to 2"),
        (manifest_with(files=[FILE, FILE]), "names a file twice"),
        (manifest_with(files=[FILE | {"path": "packages/../../etc/x.deb"}]), "names 'packages/../../etc/x.deb'"),
        (manifest_with(files=[FILE | {"path": "/etc/x.deb"}]), "names '/etc/x.deb'"),
        (manifest_with(files=[FILE | {"path": "packages/-o.deb"}]), "names 'packages/-o.deb'"),
        (manifest_with(files=[FILE | {"sha256": ""}]), "names 'packages/b.deb'"),
        (manifest_with(files=[{"path": "packages/b.deb"}]), "manifest.json cannot be read"),
    ],
)
def test_a_bundle_that_does_not_match_its_manifest_is_refused(
    made: Path, change: Callable[[dict[str, bytes]], Any], message: str
) -> None:
    with pytest.raises(WherryError) as error:
        verified(rewritten(made, change))
    assert message in str(error.value)


def test_a_link_in_a_bundle_is_refused(made: Path) -> None:
    with tarfile.open(made) as tar, tarfile.open(made.with_name("other"), "w") as other:
        for entry in tar:
            file = tar.extractfile(entry)
            if entry.name == "images/web.tar":
                entry.type, entry.linkname, entry.size, file = tarfile.SYMTYPE, "/etc/shadow", 0, None
            other.addfile(entry, file)
    with pytest.raises(WherryError, match=r"there is no images/web\.tar"):
        verified(made.with_name("other"))


def test_a_file_that_changes_after_the_verification_is_not_installed(made: Path, tmp_path: Path) -> None:
    found = verified(made)
    other = rewritten(made, lambda members: members.update({"images/web.tar": b"egami"}))
    folder = tmp_path / "unpacked"
    folder.mkdir()
    with bundle.opened(other) as file, pytest.raises(WherryError, match=r"images/web\.tar of the bundle is damaged"):
        bundle.unpack(file, found, IMAGES, folder)


@pytest.mark.parametrize(
    "name", ["packages/a b.deb", "packages/-a.deb", "other/a.deb", "packages/a.tar", "wheels/a.zip", "wheels/../a.whl"]
)
def test_a_name_that_no_bundle_may_have_is_refused_when_it_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(WherryError, match="is no name in a bundle"):
        bundle.members([(name, tmp_path)])


# -- the command ----------------------------------------------------------------------------------------------------------
def create(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["bundle", "create", *map(str, words)])


def test_the_command_writes_a_file_of_its_owner_and_prints_the_digest(tmp_path: Path) -> None:
    bundle_files.package(tmp_path / "a.deb")
    done = create(tmp_path / "out", tmp_path / "a.deb")
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == verified(tmp_path / "out").digest
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.deb", "out"]


def test_the_command_replaces_no_file_and_leaves_none(tmp_path: Path) -> None:
    bundle_files.package(tmp_path / "a.deb")
    (tmp_path / "out").write_text("mine")
    assert "exists" in str(create(tmp_path / "out", tmp_path / "a.deb").exception)
    assert (tmp_path / "out").read_text() == "mine"
    assert "is no name" not in str(create(tmp_path / "new", tmp_path / "none.deb").exception)
    assert "no such file" in str(create(tmp_path / "new", tmp_path / "none.deb").exception).lower()
    assert "neither a Debian package" in str(create(tmp_path / "new", tmp_path / "a.rpm").exception)
    assert "name packages" in str(create(tmp_path / "new").exception)
    other = tmp_path / "other"
    other.mkdir()
    bundle_files.package(other / "a.deb")
    assert "two files have the name packages/a.deb" in str(
        create(tmp_path / "new", tmp_path / "a.deb", other / "a.deb").exception
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.deb", "other", "out"]


def test_a_bundle_for_another_architecture_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle_files.package(tmp_path / "a.deb")
    monkeypatch.setattr(bundle, "ARCHITECTURE", "s390x")
    assert create(tmp_path / "out", tmp_path / "a.deb").exit_code == 0
    monkeypatch.setattr("os.geteuid", lambda: 0)
    done = CliRunner().invoke(app, ["bundle", "load", str(tmp_path / "out"), "--prefix", str(tmp_path / "machine")])
    assert "the bundle is for s390x, and this machine is" in str(done.exception)
    assert not (tmp_path / "machine").exists()


def test_only_a_bundle_with_wheels_has_the_format_that_older_versions_refuse(tmp_path: Path) -> None:
    for name, number in (("a.deb", 1), ("a-1-py3-none-any.whl", 2)):
        made = bundle_files.package(tmp_path / name) if number == 1 else bundle_files.wheel(tmp_path / name)
        assert create(tmp_path / f"out{number}", made).exit_code == 0
        with tarfile.open(tmp_path / f"out{number}") as tar:
            file = tar.extractfile("manifest.json")
            assert file is not None and json.load(file)["format"] == number


def test_wheels_are_kept_where_the_installation_finds_them_instead_of_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    target = tmp_path / "machine/var/lib/wherry/wheels"
    for name in ("a-1-py3-none-any.whl", "a-2-py3-none-any.whl"):
        wheel = bundle_files.wheel(tmp_path / name)
        assert create(tmp_path / f"{name}.bundle", wheel).exit_code == 0
        words = ["bundle", "load", str(tmp_path / f"{name}.bundle"), "--prefix", str(tmp_path / "machine")]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0 and f"1 wheels are in {target}" in done.output, done.exception
        assert {path.name: path.read_bytes() for path in target.iterdir()} == {name: wheel.read_bytes()}
        assert (target / name).stat().st_mode & 0o777 == 0o644 and target.stat().st_mode & 0o777 == 0o755
        assert [path.name for path in target.parent.iterdir()] == ["wheels"]


def test_a_digest_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unset variable of a shell must not mean that nothing is compared."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for digest in ("", "abc", "0" * 63, "0" * 65):
        done = CliRunner().invoke(app, ["bundle", "load", str(tmp_path / "none"), "--sha256", digest])
        assert "is no SHA-256" in str(done.exception), digest


def test_a_long_header_is_not_read_into_memory(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "long", "w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.pax_headers = {"comment": "x" * (2 << 20)}
        tar.addfile(entry)
    with pytest.raises(WherryError, match="a header of more than 1 MiB"):
        verified(tmp_path / "long")
