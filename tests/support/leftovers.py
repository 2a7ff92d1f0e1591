"""Leftovers that must not be on a machine after Wherry was removed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.cluster import Cluster

DAEMONS = ("containerd", "control", "agent", "netproxy")


def pids(machine: Cluster) -> list[int]:
    """Return the processes that must be gone afterwards: the daemons there are, and their supervisor."""
    folder = machine.prefix / "run/wherry"
    return [machine.pid(d) for d in (*DAEMONS, "supervisor") if (folder / f"{d}.pid").exists()]


def assert_nothing_left(machine: Cluster, before: list[int] | None = None) -> None:
    """Check processes, mounts, links, routes, addresses, rules, cgroups and files."""
    prefix = machine.prefix
    assert [pid for pid in before or () if _lives(pid)] == []
    assert [line for line in _command_lines() if str(prefix) in line] == []
    assert [
        line for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines() if str(prefix) in line
    ] == []
    links = machine.host.run("ip", "-brief", "link").stdout.split("\n")
    assert sorted(line.split()[0].split("@")[0] for line in links if line) == ["eth0", "lo"]
    assert "10." not in machine.host.run("ip", "route").stdout
    assert "10.96" not in machine.host.run("ip", "address", "show", "lo").stdout
    for command in (["iptables-save"], ["iptables-legacy-save"], ["ip6tables-save"], ["nft", "list", "ruleset"]):
        left = machine.host.run(*command, check=False).stdout
        assert not re.search("KUBE|WHERRY|CNI|kube|wherry", left), left
    assert list(Path("/sys/fs/cgroup").glob(f"*/wherry-tmp-{prefix.name}*")) == []
    assert files(machine) == []


def files(machine: Cluster) -> list[Path]:
    """Return the files of an installation, without those that tests put beside it."""
    found = [p for p in machine.prefix.rglob("*") if p.is_file()]
    return [p for p in found if p.name != "resolv.conf" and "kube-cache" not in p.parts]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _command_lines() -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in found if "pytest" not in line]
