"""`wherry bundle load` on a copy of this machine: packages that are missing or older are installed, without a network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.copied_machine import CopiedMachine, copied_machine
from wherry import bundle

ROOT = Path(__file__).resolve().parents[2]
BASE, TOP, OTHER = "wherry-test-base", "wherry-test-top", "wherry-test-other"
CONFFILE = "/etc/wherry-test.conf"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CopiedMachine]:
    (tmp_path / "mounts").mkdir()
    shown = (ROOT, Path(sys.prefix).resolve())
    with copied_machine(tmp_path / "mounts", ["unshare", "--net"], shown=shown) as found:
        yield found


def package(folder: Path, name: str, version: str, depends: str = "") -> Path:
    """Build a package with a configuration file that differs in each version."""
    tree = folder / f"{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    lines = [f"Package: {name}", f"Version: {version}", "Architecture: all", "Maintainer: nobody <nobody@localhost>"]
    lines += [f"Depends: {depends}"] if depends else []
    (tree / "DEBIAN/control").write_text("\n".join([*lines, "Description: test", ""]))
    if name == BASE:
        (tree / "etc").mkdir()
        (tree / CONFFILE[1:]).write_text(version)
        (tree / "DEBIAN/conffiles").write_text(f"{CONFFILE}\n")
    path = folder / f"{name}_{version}_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, path], check=True, capture_output=True)
    return path


def bundled(folder: Path, *packages: Path) -> tuple[Path, str]:
    path = folder / "test.bundle"
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        sources = [(f"packages/{each.name}", each) for each in packages]
        return path, bundle.write(file, sources, bundle.members(sources), "1")


def load(machine: CopiedMachine, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    file = machine.copy(path)
    command = [sys.executable, "-P", "-m", "wherry.main", "bundle", "load", file, *options]
    return machine.run(*command, check=False, PYTHONPATH=str(ROOT), COLUMNS="200", PYTHONDONTWRITEBYTECODE="1")


def version(machine: CopiedMachine, name: str) -> str:
    shown = machine.run("dpkg-query", "--show", "--showformat=${Version} ${db:Status-Status}", name, check=False).stdout
    return shown.removesuffix(" installed") if shown.endswith(" installed") else ""


def test_missing_and_older_packages_are_installed_and_newer_ones_kept(machine: CopiedMachine, tmp_path: Path) -> None:
    present = [package(tmp_path, BASE, "0.9"), package(tmp_path, OTHER, "2.0")]
    machine.run("dpkg", "--install", *map(machine.copy, present))
    machine.write(CONFFILE, "the administrator's")
    top = package(tmp_path, TOP, "1.0", depends=f"{BASE} (>= 1.0)")
    path, digest = bundled(tmp_path, top, package(tmp_path, BASE, "1.0"), package(tmp_path, OTHER, "1.0"))
    done = load(machine, path, "--sha256", digest)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [version(machine, name) for name in (BASE, TOP, OTHER)] == ["1.0", "1.0", "2.0"]
    assert {f"installed {TOP} 1.0", f"installed {BASE} 1.0"} <= set(done.stdout.splitlines())
    assert machine.run("cat", CONFFILE).stdout == "the administrator's"
    assert machine.files("/var/lib/wherry") == set()
    again = load(machine, path, "--sha256", digest)
    assert again.returncode == 0 and "installed wherry-test" not in again.stdout


def test_nothing_is_installed_of_a_bundle_that_is_damaged_or_another(machine: CopiedMachine, tmp_path: Path) -> None:
    path, digest = bundled(tmp_path, package(tmp_path, BASE, "1.0"), package(tmp_path, OTHER, "1.0"))
    done = load(machine, path, "--sha256", "0" * 64)
    assert done.returncode == 1 and f"the bundle has the SHA-256 {digest}, not the one given" in done.stderr
    data = path.read_bytes()
    position = data.rindex(b"!<arch>")
    path.write_bytes(data[:position] + b"?" + data[position + 1 :])
    done = load(machine, path)
    assert done.returncode == 1 and f"packages/{OTHER}_1.0_all.deb of the bundle is damaged" in done.stderr
    assert [version(machine, name) for name in (BASE, OTHER)] == ["", ""]
    assert not machine.exists("/var/lib/wherry")


def test_a_missing_dependency_is_reported_and_nothing_installed(machine: CopiedMachine, tmp_path: Path) -> None:
    path, _ = bundled(tmp_path, package(tmp_path, TOP, "1.0", depends=f"{BASE} (>= 1.0)"))
    done = load(machine, path)
    assert done.returncode == 1 and "the packages cannot be installed" in done.stderr
    assert version(machine, TOP) == ""


def test_a_file_that_is_no_package_is_reported(machine: CopiedMachine, tmp_path: Path) -> None:
    (tmp_path / "a.deb").write_bytes(b"no archive")
    path, _ = bundled(tmp_path, package(tmp_path, BASE, "1.0"), tmp_path / "a.deb")
    done = load(machine, path)
    assert done.returncode == 1 and "a.deb is no Debian package" in done.stderr
    assert version(machine, BASE) == ""
