"""scripts/package image: an image that containerd imports and whose command runs, without what only its build needed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.containerd import Containerd, start_containerd
from wherry import VERSION

ROOT = Path(__file__).resolve().parents[2]
NAME = f"localhost/wherry:{VERSION}"
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    command = [str(ROOT / "scripts/package"), "image", "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.iterdir()
    assert done.stdout.splitlines() == [str(built)]
    return built


@pytest.fixture(scope="module")
def containerd(archive: Path) -> Iterator[Containerd]:
    with start_containerd(f"package-image-{os.getpid()}") as daemon:
        daemon.ctr("images", "import", str(archive))
        yield daemon


def run(containerd: Containerd, *command: str) -> str:
    return str(containerd.ctr("run", "--rm", NAME, f"run-{os.getpid()}", *command).stdout)


def test_the_image_is_imported_under_its_name(containerd: Containerd) -> None:
    assert NAME in containerd.ctr("images", "list", "--quiet").stdout.split()


def test_the_entrypoint_is_the_command(containerd: Containerd) -> None:
    assert "Commands:" in run(containerd)


def test_the_command_and_its_programs_run(containerd: Containerd) -> None:
    assert run(containerd, "wherry", "--version").startswith(f"wherry {VERSION} (Kubernetes v")
    assert "Client Version: v1." in run(containerd, "wherry", "kubectl", "version", "--client")
    for program in ("containerd", "runc", "nft", "iptables", "modprobe"):
        assert run(containerd, "sh", "-c", f"command -v {program}").strip()


def test_nothing_of_the_machine_that_built_it_is_inside(containerd: Containerd) -> None:
    inside = "cat /etc/apt/sources.list /etc/hostname /etc/resolv.conf /etc/machine-id 2>/dev/null; ls /var/lib/apt/lists /tmp"
    assert run(containerd, "sh", "-c", inside).replace("/tmp:", "").replace("/var/lib/apt/lists:", "").strip() == ""
    assert run(containerd, "dpkg", "--verify", "wherry") == ""
