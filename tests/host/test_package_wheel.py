"""scripts/package wheel: the contents of wheel and sdist, and the wheel in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from wherry import VERSION
from wherry.units import UNITS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "control", "cri", "kube", "netproxy", "wherry")
GENERATED = {"kube/build.json"}
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    command = [str(ROOT / "scripts/package"), "wheel", "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [str(folder / name) for name in (SDIST, WHEEL)]
    return folder


SDIST, WHEEL = f"wherry-{VERSION}.tar.gz", f"wherry-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def members(built: Path) -> list[str]:
    with zipfile.ZipFile(built / WHEEL) as wheel:
        return wheel.namelist()


@pytest.fixture(scope="module")
def venv(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; its dependencies are those that this test runs with."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "--disable-pip-version-check"]
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(built / WHEEL)]
    subprocess.run([*pip, *install], check=True, timeout=100, env=environment(), cwd="/")
    (site,) = folder.glob("lib/python3*/site-packages")
    dependencies = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    return folder


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=environment(), cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sources(pattern: str) -> set[str]:
    found = {str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob(pattern)}
    return {path for path in found if "__pycache__" not in path and path not in GENERATED}


def test_the_wheel_has_every_module_and_data_file_and_nothing_else(members: list[str]) -> None:
    expected = sources("*.*") - sources("*.md")
    expected |= {f"wherry/{path.relative_to(ROOT)}" for path in (ROOT / "systemd").rglob("*") if path.is_file()}
    inside = {name for name in members if not name.startswith(f"wherry-{VERSION}.dist-info/")} - GENERATED
    assert inside == expected
    assert {f"wherry/systemd/{name}" for name in UNITS.values()} <= inside


def test_the_metadata_name_licence_command_and_requirements(built: Path, members: list[str]) -> None:
    head = f"wherry-{VERSION}.dist-info"
    assert f"{head}/licenses/LICENSE" in members
    with zipfile.ZipFile(built / WHEEL) as wheel:
        metadata = wheel.read(f"{head}/METADATA").decode()
        points = wheel.read(f"{head}/entry_points.txt").decode().split()
    commands = "kubectl-wherry = wherry.main:main wherry = wherry.main:main"
    assert points == f"[console_scripts] {commands} [pytest11] wherry = wherry.testing.plugin".split()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata and "\nRequires-Python: >=3.11\n" in metadata
    needed = re.findall(r"^Requires-Dist: ([^>=<;]+)[^;\n]*(;.*)?$", metadata, re.MULTILINE)
    assert ("msgspec", "") in needed and ("kubernetes-validate", "") not in needed
    assert any(name == "grpcio" and 'extra == "node"' in condition for name, condition in needed)
    assert any(name == "wherry[control,explain,node,tracing]" for name, _ in needed), needed


def test_the_sdist_has_what_builds_installs_and_tests(built: Path) -> None:
    with tarfile.open(built / SDIST) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    names = ("setup.py", "LICENSE", "README.md", "requirements.lock", "requirements-package.lock", "scripts/install")
    assert {
        *names,
        "scripts/package",
        "packages/deb/control",
        "systemd/wherry-agent.service",
        "tests/conftest.py",
    } <= inside
    assert sources("*.*") <= inside
    assert not [name for name in inside if re.search(r"__pycache__|\.pyc$|(^|/)\.(venv|git|cache)(/|$)|^dist/", name)]


def test_the_installed_command_runs(venv: Path) -> None:
    assert run(venv / "bin/wherry", "--version").startswith(f"wherry {VERSION} (Kubernetes v")
    assert "Commands:" in run(venv / "bin/wherry", "--help")
    assert run(venv / "bin/python", "-P", "-m", "wherry.manual").startswith(".TH WHERRY 1")


def test_every_module_of_the_wheel_can_be_imported(venv: Path, members: list[str]) -> None:
    names = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in members
        if name.endswith(".py") and not name.endswith("/__main__.py")
    )
    assert len(names) > 500
    script = (
        "import importlib, sys, wherry\n"
        "for name in sys.argv[1].split(): importlib.import_module(name)\n"
        "outside = [n for n, m in sys.modules.items() if n.split('.')[0] in sys.argv[2].split()"
        " and not (m.__file__ or '').startswith(sys.prefix)]\n"
        "print(outside, wherry.units.FILES)"
    )
    (site,) = venv.glob("lib/python3*/site-packages")
    shown = run(venv / "bin/python", "-P", "-c", script, " ".join(names), " ".join(PACKAGES))
    assert shown.strip() == f"[] {site}/wherry/systemd"


def test_the_wheel_knows_the_commit_that_it_was_built_from(venv: Path) -> None:
    shown = run(
        venv / "bin/python", "-P", "-c", "from kube.build import build; print(build().commit, build().tree_state)"
    )
    commit, state = shown.split()
    if (ROOT / ".git").exists():
        assert re.fullmatch("[0-9a-f]{40}", commit) and state in ("clean", "dirty")
