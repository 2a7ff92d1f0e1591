"""The exit status of `wherry status`: 0 only where daemons, API server and nodes are well."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from kube import errors
from kube.api import core_v1, meta_v1
from wherry import cluster, daemons, health, main
from wherry.settings import Settings


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
