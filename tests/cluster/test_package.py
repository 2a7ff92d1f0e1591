"""A machine with the Debian package: a pod outlives upgrade and removal, and after a reset and a purge nothing is left.

The machine is a copy-on-write view of this one with processes and a network of its own (tests/support/copied_machine.py). Its
installation is that of the root folder, whose pods are in the cgroup kubepods, so the test needs a machine without other pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import images, packages
from tests.support.cluster import eventually
from tests.support.copied_machine import CopiedMachine, copied_machine
from tests.support.host import OUTSIDE, host
from tests.support.packages import changed
from wherry import VERSION

NAME = "wherry-package"
IMAGE = "wherry.test/busybox:package"
DAEMONS = r"wherry\.(roles|supervisor|allocator)|bin/containerd "
CGROUPS = Path("/sys/fs/cgroup")
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        any(CGROUPS.glob("kubepods*")) or any(CGROUPS.glob("*/kubepods*")), reason="other pods run here"
    ),
]


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages.build_deb(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def older(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages.repacked(deb, tmp_path_factory.mktemp("older"), "0.0.9")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CopiedMachine]:
    with host(NAME) as network, copied_machine(tmp_path, network.enter) as found:
        found.shell("rm -f /usr/local/bin/wherry /usr/local/bin/kubectl; userdel wherry 2>/dev/null || true")
        # Containers' files cannot be on the overlay that the machine's root is.
        found.shell("mkdir -p /var/lib/wherry && mount -t tmpfs -o size=2g tmpfs /var/lib/wherry")
        found.write("/etc/resolv.conf.test", f"nameserver {OUTSIDE}\n")
        found.write("/etc/wherry/config.yaml", "node-name: node1\nresolv-conf: /etc/resolv.conf.test\n")
        yield found


def up(machine: CopiedMachine) -> None:
    machine.run("wherry", "up", timeout=180)


def daemons(machine: CopiedMachine) -> dict[str, int]:
    shown = json.loads(machine.run("wherry", "status", "-o", "json", check=False).stdout)
    return {each["name"]: each["pid"] for each in shown["daemons"]}


def container(machine: CopiedMachine) -> tuple[str, int]:
    """Return when the pod's container started, as the kernel has it, and its restarts, as the API has them."""
    (pid,) = machine.run("pgrep", "-f", "^sleep 424242$").stdout.split()
    started = machine.run("stat", "--format=%Y", f"/proc/{pid}").stdout.strip()
    shown = json.loads(machine.run("wherry", "kubectl", "get", "pod", "steady", "-o", "json").stdout)
    return f"{pid} {started}", shown["status"]["containerStatuses"][0]["restartCount"]


def is_running(machine: CopiedMachine) -> bool:
    shown = machine.run("wherry", "kubectl", "get", "pod", "steady", "-o", "jsonpath={.status.phase}", check=False)
    return shown.stdout == "Running"


def test_a_pod_outlives_the_package(machine: CopiedMachine, deb: Path, older: Path, tmp_path: Path) -> None:
    before = machine.written()
    machine.run("apt-get", "install", "--yes", machine.copy(older), timeout=200)
    up(machine)
    archive = images.archive(tmp_path / "images.tar", [images.busybox(IMAGE)])
    machine.run("wherry", "image", "load", machine.copy(archive))
    run = ["kubectl", "run", "steady", f"--image={IMAGE}", "--image-pull-policy=Never", "--", "sleep", "424242"]
    machine.run("wherry", *run)
    eventually(lambda: is_running(machine), "the pod runs")
    first, pids = container(machine), daemons(machine)

    machine.run("apt-get", "install", "--yes", machine.copy(deb), timeout=200)
    assert machine.run("dpkg-query", "--show", "--showformat=${Version}", "wherry").stdout == VERSION
    eventually(lambda: machine.run("wherry", "status", check=False).returncode == 0, "all daemons are healthy")
    now = daemons(machine)
    assert now.keys() == pids.keys() and not set(now.values()) & set(pids.values())
    assert container(machine) == first
    up(machine)
    assert daemons(machine) == now and container(machine) == first

    machine.run("dpkg", "--remove", "wherry", timeout=120)
    (pid,) = machine.run("pgrep", "-f", "^sleep 424242$").stdout.split()
    assert first[0].startswith(f"{pid} ")
    assert machine.run("pgrep", "-f", DAEMONS, check=False).stdout == ""
    machine.run("dpkg", "--purge", "wherry")
    assert machine.exists("/etc/wherry/wherry.json") and machine.exists("/var/lib/wherry/pki/ca.crt")

    machine.run("apt-get", "install", "--yes", machine.copy(deb), timeout=200)
    up(machine)
    assert container(machine) == first
    machine.run("wherry", "reset", "--yes", timeout=180)
    assert machine.run("pgrep", "-f", "^sleep 424242$", check=False).stdout == ""
    machine.run("umount", "/var/lib/wherry", check=False)
    machine.run("dpkg", "--purge", "wherry")
    left = changed(before, machine.written()) - before
    is_file = ["bash", "-c", "[[ ( -e $1 || -L $1 ) && ! -d $1 ]]", "bash"]
    assert [path for path in sorted(left) if machine.run(*is_file, path, check=False).returncode == 0] == []
    assert machine.run("pgrep", "-f", DAEMONS, check=False).stdout == ""
