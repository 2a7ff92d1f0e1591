"""An older commit of this repository, installed as its own documents say, for tests of upgrades and of version skew.

There are no releases and no tags yet: the former version is a commit.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.machines import Machine, Machines

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "3e4aa4c09d12acc182ad38861a943603be3dd1c1"
"""The commit that stands for the former version.

It is 400 commits before 7f6c8477, the newest one when this test was written, and supports all that the test
creates. A release replaces it by its tag.
"""


def needs_history() -> pytest.MarkDecorator:
    """Return the mark that skips tests in a checkout without the older commit."""
    argv = ["git", "-C", str(ROOT), "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    found = shutil.which("git") and subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode == 0
    reason = f"commit {COMMIT[:8]} is not in the history of {ROOT}: a shallow clone, or no git"
    return pytest.mark.skipif(not found, reason=reason)


def checkout(folder: Path) -> Path:
    """Create a checkout of the older commit; its objects are those of this repository."""
    for argv in (["clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(folder)], ["checkout", "-q", COMMIT]):
        before = [] if argv[0] == "clone" else ["-C", str(folder)]
        subprocess.run(["git", *before, *argv], check=True, capture_output=True, timeout=120)
    return folder


def install(source: Path, folder: Path, *options: str) -> None:
    """Install a checkout in a folder, which may contain another version."""
    argv = [str(source / "scripts/install"), str(folder), *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def head(source: Path) -> str:
    """Return the commit of a checkout."""
    argv = ["git", "-C", str(source), "rev-parse", "HEAD"]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def install_on(machines: Machines, source: Path, folder: Path) -> None:
    """Install a checkout on machines, for each in a folder of its own below `folder`; packages are downloaded once."""
    for machine in machines:
        machine.installation = folder / machine.node
        if machine is not machines.first:
            shutil.copytree(folder / machines.first.node, machine.installation, symlinks=True)
        install(source, machine.installation)


def upgrade(machine: Machine) -> None:
    """Install this version on a machine, by the documented commands."""
    assert machine.installation is not None
    install(ROOT, machine.installation, "--prepare")
    prepared = machine.installation.with_name(f"{machine.installation.name}.new")
    checked = machine.wherry("upgrade", "--check", installation=prepared).stdout
    assert "error" not in checked, checked
    assert "stopped" in machine.wherry("down").stdout
    install(ROOT, machine.installation)
    machine.wherry("up")


def downgrade(machine: Machine, older: Path) -> None:
    """Install the older version on a machine; its scripts/install has no --prepare, so it gets a folder of its own."""
    assert machine.installation is not None
    folder = machine.installation.with_name(f"{machine.node}-older")
    install(older, folder)
    assert "stopped" in machine.wherry("down").stdout
    machine.installation = folder
    machine.wherry("up")


def commits(machines: Machines) -> list[str]:
    """Return the commits that the first API server reports, and that the machines' daemons were started from."""
    found = [json.loads(machines.kubectl("get", "--raw", "/version").stdout)["gitCommit"]]
    for machine in machines:
        assert machine.installation is not None
        assert str(machine.installation) in Path(f"/proc/{machine.pid('agent')}/cmdline").read_text()
        found.append(json.loads((machine.installation / "src/kube/build.json").read_text())["gitCommit"])
    return found
