"""docs/start.md shows what the command prints: the steps of `wherry up`, and `wherry status`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.support import messages
from tests.support.pages import Step, parse
from wherry.settings import Settings
from wherry.starting import _named
from wherry.status import Daemon, Disk, Node, Status
from wherry.status_text import lines

PAGE = Path(__file__).resolve().parents[3] / "docs/start.md"


def shown(command: str) -> list[str]:
    steps = [step for step in parse(PAGE.read_text()) if isinstance(step, Step) and step.command == command]
    assert len(steps) == 1
    return steps[0].shows


def test_the_steps_of_up_are_those_of_the_code() -> None:
    steps = [line[2:].rpartition(" (")[0] for line in shown("sudo scripts/up") if line.startswith("✓ ")]
    script = (PAGE.parents[1] / "scripts/install").read_text()
    *installation, _, _, _, _, _, _ = steps
    words = ("install containerd", "Python packages into", "compile the sources")
    assert [word in step for word, step in zip(words, installation, strict=True)] == [True] * 3
    assert all(word in script for word in words[1:])
    steps = steps[len(installation) :]
    assert [step for step in steps if not messages.fits(step)] == []
    assert f"start {_named(Settings())}" in steps
    assert messages.exists("kubectl is set up for … in …. Try:")


def test_the_status_has_the_form_of_the_code() -> None:
    names, sizes = ("containerd", "control", "agent", "netproxy"), (38, 120, 70, 45)
    pids, uptimes = (812, 835, 841, 846), (62.0, 61.0, 61.0, 61.0)
    daemons = [
        Daemon(name, pid, size << 20, uptime, "", "")
        for name, pid, size, uptime in zip(names, pids, sizes, uptimes, strict=True)
    ]
    disk = Disk("/var/lib/wherry", 100 << 30, free=88 << 30, used=12 << 30)
    status = Status("https://192.168.1.10:6443", daemons, disk, [], datetime(2026, 1, 2, tzinfo=UTC))
    status.nodes = [Node("node1", True, "", "v1.36.2+wherry")]
    printed = "\n".join(lines(status)).replace("88 GiB", "34 GiB")
    assert Step("", shown("sudo wherry status")).agrees(printed)
    assert shown("sudo wherry status")[:6] == printed.splitlines()[:6]
