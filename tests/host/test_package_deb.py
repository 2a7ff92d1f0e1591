"""scripts/package deb: contents of the package, and installation, upgrade, removal and purge on a copy of this machine."""

from __future__ import annotations

import re
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import packages
from tests.support.copied_machine import CopiedMachine, copied_machine
from wherry import VERSION
from wherry.units import UNITS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # a package is built first
SYSTEMCTL = """#!/bin/sh
echo "$@" >>/run/systemctl.calls
case "$*" in *MainPID*wherry-control* | *MainPID*wherry-agent*) echo 4711 ;; *MainPID*) echo 0 ;; esac
"""


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = packages.build_deb(tmp_path_factory.mktemp("built"))
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout
    assert built.name == f"wherry_{VERSION}_{architecture.strip()}.deb"
    return built


@pytest.fixture(scope="module")
def older(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of an earlier version, with a module that the later one has not, and without one that it has."""

    def change(tree: Path) -> None:
        (tree / "opt/wherry/src/wherry/gone.py").write_text("")
        (tree / "opt/wherry/src/wherry/after_upgrade.py").unlink()

    return packages.repacked(deb, tmp_path_factory.mktemp("older"), "0.0.9", change)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CopiedMachine]:
    with copied_machine(tmp_path) as found:
        found.shell("rm -f /usr/local/bin/wherry; getent passwd wherry >/dev/null && userdel wherry; true")
        found.shell("for each in $(type -ap kubectl); do rm -f $each; done")
        yield found


def members(deb: Path) -> list[tarfile.TarInfo]:
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
            return list(tar)


def test_files_are_roots_and_only_root_may_change_them(deb: Path) -> None:
    for member in members(deb):
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "root", "root"), member.name
        if not member.issym():
            assert not member.mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID), member.name
            unit = member.name.startswith("./usr/lib/systemd/system/")
            assert member.mode & 0o777 == 0o600 if unit else member.mode & 0o444 == 0o444, member.name
        assert member.isdir() or member.issym() or member.isfile()


def test_files_are_in_the_folders_of_packages(deb: Path) -> None:
    names = {member.name.removeprefix(".") for member in members(deb) if not member.isdir()}
    expected = {f"/usr/lib/systemd/system/{unit}" for unit in UNITS.values()} | {
        "/opt/wherry/bin/wherry",
        "/opt/wherry/kubectl/bin/kubectl",
        "/usr/bin/kubectl-wherry",
        "/usr/bin/wherry",
        "/usr/lib/sysusers.d/wherry.conf",
        "/usr/share/bash-completion/completions/wherry",
        "/usr/share/doc/wherry/changelog.gz",
        "/usr/share/doc/wherry/copyright",
        "/usr/share/doc/wherry/docs/install.md",
        "/usr/share/fish/vendor_completions.d/wherry.fish",
        "/usr/share/man/man1/wherry.1.gz",
        "/usr/share/zsh/vendor-completions/_wherry",
    }
    assert expected <= names
    assert not [name for name in names - expected if not name.startswith(("/opt/wherry/", "/usr/share/doc/wherry/"))]
    source = {name for name in names if name.startswith("/opt/wherry/src/") and name.endswith(".py")}
    compiled = {re.sub(r"/__pycache__/([^./]+)\.[^/]+$", r"/\1.py", name) for name in names if name.endswith(".pyc")}
    assert source and source <= compiled
    assert not [name for name in names if re.search(r"/site-packages/(pip|setuptools)/", name)]


def test_the_control_file_names_what_scripts_install_installs(deb: Path) -> None:
    shown = subprocess.run(["dpkg-deb", "--field", str(deb)], capture_output=True, text=True, check=True).stdout
    fields = dict(line.split(": ", 1) for line in shown.splitlines() if not line.startswith(" "))
    packages = set(re.findall(r"^need (\S+) \S+$", (ROOT / "scripts/install").read_text(), re.M)) | {"libjemalloc2"}
    named = {re.split(r"[ |]", each.strip())[0] for each in fields["Depends"].split(",")}
    assert packages <= named
    assert any(re.fullmatch(r"python3\.\d+", name) for name in named)
    assert int(fields["Installed-Size"]) > 50_000
    assert "Conffiles" not in fields


def test_a_machine_without_a_cluster_gets_programs_and_nothing_is_started(deb: Path, machine: CopiedMachine) -> None:
    machine.shell("mkdir -p /run/systemd/system")
    machine.write("/usr/bin/systemctl", SYSTEMCTL, 0o755)
    before = machine.written()
    machine.run("apt-get", "install", "--yes", machine.copy(deb), timeout=200)
    assert machine.run("cat", "/run/systemctl.calls").stdout == "daemon-reload\n"
    assert machine.run("dpkg", "--verify", "wherry").stdout == ""
    assert machine.run("wherry", "--version").stdout.startswith(f"wherry {VERSION} ")
    assert machine.run("id", "--name", "--user", "wherry").stdout == "wherry\n"
    imports = "import wherry.main, control.main, agent.main, netproxy.main; print(wherry.__file__)"
    as_account = ["setpriv", "--reuid=wherry", "--regid=wherry", "--clear-groups", "/opt/wherry/bin/python", "-P", "-c"]
    assert machine.run(*as_account, imports).stdout == "/opt/wherry/src/wherry/__init__.py\n"
    assert machine.run("readlink", "/usr/local/bin/kubectl").stdout == "/opt/wherry/kubectl/bin/kubectl\n"
    assert "Client Version: v1." in machine.run("kubectl", "version", "--client").stdout
    assert machine.run("bash", "-c", "source /usr/share/bash-completion/completions/wherry").stderr == ""
    page = machine.run("man", "--local-file", "--warnings", "/usr/share/man/man1/wherry.1.gz")
    assert page.stdout.startswith("WHERRY(1)") and page.stderr == ""

    machine.run("dpkg", "--purge", "wherry")
    assert packages.changed(before, machine.written()) == set()
    assert machine.run("id", "wherry", check=False).returncode == 1


def test_an_upgrade_restarts_the_daemons_that_run(deb: Path, older: Path, machine: CopiedMachine) -> None:
    machine.run("dpkg", "--install", machine.copy(older), timeout=200)
    machine.shell("mkdir -p /run/systemd/system")
    machine.write("/usr/bin/systemctl", SYSTEMCTL, 0o755)
    machine.write("/etc/wherry/wherry.json", "{}", 0o600)
    done = machine.run("dpkg", "--install", machine.copy(deb), timeout=200)
    calls = machine.run("cat", "/run/systemctl.calls").stdout.splitlines()
    changes = [call for call in calls if not call.startswith("show ")]
    assert changes == ["daemon-reload", "restart --no-block wherry-control.service wherry-agent.service"]
    assert "restarted control, agent" in done.stdout
    assert not machine.exists("/opt/wherry/src/wherry/gone.py")
    assert machine.exists("/opt/wherry/src/wherry/after_upgrade.py")
    assert machine.run("dpkg", "--verify", "wherry").stdout == ""


def test_a_removal_stops_the_daemons_and_a_purge_keeps_the_cluster(deb: Path, machine: CopiedMachine) -> None:
    machine.run("dpkg", "--install", machine.copy(deb), timeout=200)
    machine.shell("mkdir -p /run/systemd/system")
    machine.write("/usr/bin/systemctl", SYSTEMCTL, 0o755)
    kept = ("/etc/wherry/wherry.json", "/etc/wherry/config.yaml", "/var/lib/wherry/control/state.db")
    for path in kept:
        machine.write(path, "{}", 0o600)
    done = machine.run("dpkg", "--remove", "wherry")
    assert "pods keep running" in done.stderr
    stopped = [
        call for call in machine.run("cat", "/run/systemctl.calls").stdout.splitlines() if call.startswith("disable")
    ]
    (call,) = stopped
    assert set(re.findall(r"wherry-\w+", call)) == {
        "wherry-control",
        "wherry-agent",
        "wherry-netproxy",
        "wherry-containerd",
    }
    assert not machine.exists("/opt/wherry") and not machine.exists("/usr/local/bin/kubectl")
    assert "was not reset" in machine.run("dpkg", "--purge", "wherry").stderr
    assert [path for path in kept if not machine.exists(path)] == []
    assert machine.run("id", "--name", "--user", "wherry").stdout == "wherry\n"


def test_a_purge_after_a_reset_removes_the_administrators_files(deb: Path, machine: CopiedMachine) -> None:
    machine.run("dpkg", "--install", machine.copy(deb), timeout=200)
    machine.write("/etc/wherry/config.yaml", "max-pods: 200\n")
    machine.write("/etc/sysctl.d/90-wherry.conf", "")
    machine.run("dpkg", "--remove", "wherry")
    assert machine.exists("/etc/wherry/config.yaml")
    machine.run("dpkg", "--purge", "wherry")
    assert not machine.exists("/etc/wherry") and not machine.exists("/etc/sysctl.d/90-wherry.conf")


def test_the_package_and_scripts_install_do_not_mix(deb: Path, machine: CopiedMachine) -> None:
    package = machine.copy(deb)
    machine.write("/opt/wherry/.installed", "stamp")
    machine.write("/opt/wherry/lib/module.py", "")
    done = machine.run("dpkg", "--install", package, check=False, timeout=200)
    assert done.returncode != 0 and "was installed by scripts/install" in done.stderr
    assert machine.files("/opt/wherry") == {"/opt/wherry/.installed", "/opt/wherry/lib", "/opt/wherry/lib/module.py"}
    machine.run("rm", "-rf", "/opt/wherry")
    machine.run("dpkg", "--install", package, timeout=200)
    machine.write("/install", (ROOT / "scripts/install").read_bytes(), 0o755)
    done = machine.run("/install", check=False)
    assert done.returncode == 1 and "apt-get remove wherry first" in done.stderr
    # A package that was removed may be purged after scripts/install has put its programs there.
    machine.run("dpkg", "--remove", "wherry")
    machine.write("/opt/wherry/.installed", "stamp")
    machine.write("/etc/wherry/config.yaml", "")
    machine.run("dpkg", "--purge", "wherry")
    assert machine.exists("/opt/wherry/.installed") and machine.exists("/etc/wherry/config.yaml")


def test_the_scripts_work_where_there_is_no_systemd(deb: Path, machine: CopiedMachine) -> None:
    machine.shell("rm -f /usr/bin/systemctl /bin/systemctl /usr/bin/systemd-sysusers")
    machine.run("dpkg", "--install", machine.copy(deb), timeout=200)
    account = machine.run("getent", "passwd", "wherry").stdout.split(":")
    assert account[5:] == ["/var/lib/wherry", "/usr/sbin/nologin\n"]
    machine.run("dpkg", "--install", machine.copy(deb), timeout=200)
    machine.run("dpkg", "--purge", "wherry")
    assert not machine.exists("/opt/wherry")
