"""Daemons on an interpreter that never frees interned strings: they start, and say so in their logs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import agent.__main__ as agent_command
import control.__main__ as control_command
import netproxy.__main__ as netproxy_command
from netproxy.config import ProxyConfig
from wherry import roles
from wherry.settings import Settings


@pytest.fixture(autouse=True)
def immortal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "getrefcount", lambda each: (1 << 32) - 1)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return []


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.name for each in caplog.records if "never frees interned strings" in each.getMessage()]


@pytest.mark.parametrize("role", ["server", "agent", "proxy", "dns"])
def test_a_role_of_the_command_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ran: list[str], role: str
) -> None:
    async def run(role: str, settings: Settings) -> None:
        ran.append(role)

    monkeypatch.setattr(sys, "argv", ["roles", role])
    monkeypatch.setattr(roles, "load", lambda prefix: Settings())
    monkeypatch.setattr(roles, "_run", run)
    roles.main()
    assert ran == [role] and warnings(caplog) == ["wherry"]


def test_the_agent_started_by_hand_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ran: list[str]
) -> None:
    async def run(config: Any) -> None:
        ran.append("agent")

    file = SimpleNamespace(logging=SimpleNamespace(format="text", verbosity=0))
    monkeypatch.setattr(sys, "argv", ["agent"])
    monkeypatch.setattr(agent_command, "from_flags", lambda flags: SimpleNamespace(file=file))
    monkeypatch.setattr(agent_command, "run", run)
    agent_command.main()
    assert ran == ["agent"] and warnings(caplog) == ["agent"]


def test_a_daemon_of_the_control_plane_started_by_hand_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ran: list[str]
) -> None:
    async def run() -> None:
        ran.append("control")

    monkeypatch.setattr(control_command, "work", lambda daemon, arguments: (run(), control_command.Logs()))
    assert control_command.cli(["kube-scheduler"]) == 0
    assert ran == ["control"] and warnings(caplog) == ["control"]


async def test_the_network_role_started_by_hand_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ran: list[str]
) -> None:
    async def run(settings: ProxyConfig) -> None:
        ran.append("netproxy")

    monkeypatch.setattr(netproxy_command.main, "run", run)
    await netproxy_command._serve(ProxyConfig())
    assert ran == ["netproxy"] and warnings(caplog) == ["netproxy"]
