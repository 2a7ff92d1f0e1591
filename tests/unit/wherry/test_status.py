"""`wherry status`: its text and data, and an exit status of 0 only if daemons, API server and nodes are healthy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from kube import errors
from kube.api import core_v1, meta_v1
from wherry import VERSION, cluster, daemons, health, installation, main, output, status_command
from wherry.errors import WherryError
from wherry.image_pulls import HINT
from wherry.pod_problems import NotReady
from wherry.settings import Settings
from wherry.status import Daemon, Disk, Node, Status, _others, _resident, as_data
from wherry.status_text import lines

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Server:
    """An API server with one node."""

    transport = None

    def __init__(self, ready: str, reachable: bool) -> None:
        self._ready, self._reachable = ready, reachable

    async def call(self, method: str, path: str) -> None:
        if not self._reachable:
            raise errors.unavailable("connection refused")

    async def list(self, kind: type[Any], **more: Any) -> Any:
        condition = core_v1.NodeCondition(type="Ready", status=self._ready)
        node = core_v1.Node(metadata=meta_v1.ObjectMeta(name="n1"), status=core_v1.NodeStatus(conditions=[condition]))
        return SimpleNamespace(items=[node] if kind is core_v1.Node else [])


@pytest.mark.parametrize(
    ("agent", "problem", "ready", "reachable", "status"),
    [
        (1, None, "True", True, 0),
        (0, None, "True", True, 1),
        (1, "it does not answer", "True", True, 1),
        (1, None, "Unknown", True, 1),
        (1, None, "True", False, 1),
    ],
    ids=["well", "agent stopped", "agent not well", "node not ready", "server unreachable"],
)
def test_the_exit_status_is_0_only_where_all_is_well(
    monkeypatch: pytest.MonkeyPatch, agent: int, problem: str | None, ready: str, reachable: bool, status: int
) -> None:
    async def running(settings: Settings) -> dict[str, int]:
        return {"control": 1, "agent": agent}

    async def problem_of(settings: Settings, daemon: str) -> str | None:
        return problem if daemon == "agent" else None

    @contextlib.asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[Server]:
        yield Server(ready, reachable)

    monkeypatch.setattr(main, "installed", lambda prefix: Settings(node_name="n1"))
    monkeypatch.setattr(daemons, "running", running)
    monkeypatch.setattr(health, "problem", problem_of)
    monkeypatch.setattr(cluster, "connect", connect)
    result = CliRunner().invoke(main.app, ["status"])
    assert result.exit_code == status, result.output


def status(**changes: object) -> Status:
    """A machine that is healthy but for these changes."""
    daemon = Daemon("agent", 7, 60 << 20, 3725.0, "", "/var/log/wherry/agent.log")
    disk = Disk("/var/lib/wherry", 100 << 30, free=25 << 30, used=70 << 30)
    found = Status("https://192.0.2.1:6443", [daemon], disk, [], NOW)
    found.nodes = [Node("n1", True, "", "v1.36.2")]
    found.phases = {"Running": 3, "Pending": 2}
    found.not_ready = [NotReady("ImagePullBackOff", 2, "default/a")]
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_the_text_has_a_line_for_each_part() -> None:
    first, *shown = lines(status(certificates=["the certificate in /x ends in 3 days: `wherry certs renew` renews it"]))
    assert first.startswith(f"wherry {VERSION} (Kubernetes v")
    assert shown == [
        "DAEMON   PID   MEMORY   UPTIME      STATE",
        "agent    7     60 MiB   1 h 2 min   running",
        "API server https://192.0.2.1:6443: ready",
        "node n1: Ready, v1.36.2",
        "pods: 2 Pending, 3 Running",
        "  2 not Ready, ImagePullBackOff: default/a and others",
        f"  {HINT}",
        "disk /var/lib/wherry: 74 % used, 25 GiB free",
        "the certificate in /x ends in 3 days: `wherry certs renew` renews it",
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"pod_network": "none"}, ["pod network and network policies: those of another CNI plugin"]),
        (
            {"pod_network": "site", "prefix": "/nonexistent"},
            [
                "pod network and network policies: those of the CNI network site; no CNI configuration in "
                "/nonexistent/etc/cni/net.d: the pod network site is not installed"
            ],
        ),
        ({"proxy": "none"}, ["Services: served by another proxy"]),
        ({"cluster_dns": "none"}, ["cluster DNS: not Wherry's"]),
        ({"dns": "none", "cluster_dns": "10.96.0.10"}, ["cluster DNS: not Wherry's, at 10.96.0.10"]),
    ],
    ids=str,
)
def test_parts_of_the_network_that_are_others_are_named(options: dict[str, str], expected: list[str]) -> None:
    found = status(others=_others(Settings(**options)))
    assert [line for line in lines(found) if line in expected] == expected
    assert found.others == expected


def test_what_is_not_healthy_is_named_with_its_log() -> None:
    stopped = Daemon("control", 0, 0, 0.0, "", "/var/log/wherry/control.log")
    ill = Daemon("agent", 7, 1, 1.0, "it does not answer", "journalctl -u wherry-agent")
    found = status(daemons=[stopped, ill], server_problem="connection refused", nodes=[], phases={}, not_ready=[])
    text = "\n".join(lines(found))
    assert "control is stopped; see /var/log/wherry/control.log" in text
    assert "agent is unhealthy: it does not answer; see `journalctl -u wherry-agent`" in text
    assert "API server https://192.0.2.1:6443: connection refused" in text and "pods" not in text
    assert not found.healthy


def test_a_node_that_is_not_ready_shows_its_conditions_message() -> None:
    found = status(nodes=[Node("n1", False, "container runtime is down", "")])
    assert "node n1: not Ready: container runtime is down" in list(lines(found)) and not found.healthy


@pytest.mark.parametrize("format", ["json", "yaml"])
def test_the_status_is_data_with_sizes_in_bytes(format: str) -> None:
    text = output.dumped(as_data(status()), format)
    data = json.loads(text) if format == "json" else yaml.safe_load(text)
    assert data["healthy"] is True and data["daemons"][0]["memory"] == 60 << 20
    assert (data["version"], data["snapshots"], data["outdated"]) == (VERSION, None, [])
    assert data["notReady"] == [{"reason": "ImagePullBackOff", "count": 2, "example": "default/a"}]


def test_a_wide_status_has_logs_and_a_table_of_nodes() -> None:
    nodes = [
        Node("n1", True, "", "v1.36.2", "192.0.2.1", "Debian GNU/Linux 12", "6.1.0", "containerd://1.6.20"),
        Node("n2", False, "no network", "v1.36.2"),
    ]
    shown = list(lines(status(nodes=nodes), wide=True))
    assert shown[1:3] == [
        "DAEMON   PID   MEMORY   UPTIME      STATE     LOG",
        "agent    7     60 MiB   1 h 2 min   running   /var/log/wherry/agent.log",
    ]
    assert shown[4:8] == [
        "NODE   STATUS     VERSION   INTERNAL-IP   OS-IMAGE              KERNEL-VERSION   CONTAINER-RUNTIME",
        "n1     Ready      v1.36.2   192.0.2.1     Debian GNU/Linux 12   6.1.0            containerd://1.6.20",
        "n2     NotReady   v1.36.2",
        "node n2: not Ready: no network, v1.36.2",
    ]
    assert "node" not in "".join(lines(status(nodes=[]), wide=True))


@pytest.mark.parametrize("content", [None, b"", b"a: [", b"contexts: [a]", b"\xff"])
def test_a_kubeconfig_that_is_missing_or_damaged_hides_no_daemon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    async def running(settings: Settings) -> dict[str, int]:
        return {"control": 0}

    monkeypatch.setattr(daemons, "running", running)
    settings = Settings(prefix=str(tmp_path), node_name="n1", node_ip="192.0.2.1")
    settings.layout.etc.mkdir(parents=True)
    settings.save()
    file = settings.layout.admin_kubeconfig
    if content == b"":
        file.mkdir()
    elif content is not None:
        file.write_bytes(content)
    found = CliRunner().invoke(main.app, ["status", "--prefix", str(tmp_path)])
    assert found.exit_code == 1 and found.output.splitlines()[2].split() == ["control", "stopped"]
    what = f"{file} is a folder: remove it, then " if content == b"" else f"{file}: "
    assert f"API server https://192.0.2.1:6443: {what}" in found.output
    assert "`wherry up` or `wherry certs renew` writes it again" in found.output
    assert "disk " in found.output
    data = json.loads(CliRunner().invoke(main.app, ["status", "--prefix", str(tmp_path), "-o", "json"]).stdout)
    assert data["healthy"] is False and str(file) in data["serverProblem"] and data["daemons"][0]["name"] == "control"


def test_a_worker_without_its_kubeconfig_is_told_to_join_again(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), role="worker", joined="https://192.0.2.1:6443")

    async def connect() -> None:
        async with cluster.connect(settings):
            pass

    with pytest.raises(WherryError, match=r"no such file: `wherry reset` and join again$"):
        asyncio.run(connect())


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("format", ["text", "wide"])
def test_a_watch_shows_the_status_until_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool, format: str
) -> None:
    pauses: list[float] = []

    async def collect(settings: Settings, now: datetime) -> Status:
        return status(phases={"Running": len(pauses)})

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(status_command.status, "collect", collect)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    with pytest.raises(typer.Exit) as ended:
        status_command.show(Settings(), format, watch=True)
    shown = capsys.readouterr().out
    assert ended.value.exit_code == 130 and pauses == [2.0] * 3
    assert [f"pods: {number} Running" in shown for number in range(4)] == [True, True, True, False]
    assert shown.count(status_command.CLEAR) == (3 if terminal else 0) and shown.count("DAEMON") == 3


def test_a_watch_and_a_status_refuse_other_formats() -> None:
    for format, watch, reason in (
        ("json", True, "-o json: --watch shows text and wide only"),
        ("table", False, "-o table: use text, wide, json or yaml"),
    ):
        with pytest.raises(WherryError) as found:
            status_command.show(Settings(), format, watch=watch)
        assert str(found.value) == reason


def test_this_process_has_memory_and_an_uptime() -> None:
    assert _resident(os.getpid()) > 1 << 20 and installation.uptime(os.getpid()) > 0
    assert _resident(0) == 0 and installation.uptime(1 << 30) == 0


def test_a_machine_on_which_nothing_runs_names_the_command_that_starts_it() -> None:
    stopped = [Daemon(name, 0, 0, 0.0, "", f"/var/log/wherry/{name}.log") for name in ("control", "agent")]
    shown = list(lines(status(daemons=stopped, server_problem="connection refused")))
    assert "nothing runs here: `wherry up` starts it" in shown
    assert not any("see /var/log" in line for line in shown)


def test_daemons_that_were_started_before_the_installation_are_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = {"containerd": os.getpid(), "agent": os.getpid(), "control": 0}
    monkeypatch.setattr(installation, "FILE", tmp_path / "build.py")
    (tmp_path / "build.py").touch()
    monkeypatch.setattr(installation, "uptime", lambda pid: 3600.0)
    assert installation.outdated(pids) == ["agent"]
    monkeypatch.setattr(installation, "uptime", lambda pid: time.time() - (tmp_path / "build.py").stat().st_ctime - 5)
    assert installation.outdated(pids) == []
    line = "agent: started before this version was installed; `wherry up` starts them again"
    assert line in list(lines(status(outdated=["agent"])))
