"""The end of `wherry up`: each daemon's own health, whatever the cluster still says of the node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from kube.api import coordination_v1, core_v1, meta_v1
from kube.client import Client
from kube.clock import format_micro_time
from wherry import daemons, health, starting
from wherry.errors import WherryError
from wherry.settings import Settings

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Server:
    """An API server with a node that was Ready before, and the node's lease."""

    def __init__(self, renewed: datetime) -> None:
        self._renewed = renewed

    async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        meta = meta_v1.ObjectMeta(name=name, namespace=namespace)
        if kind is coordination_v1.Lease:
            return coordination_v1.Lease(
                metadata=meta, spec=coordination_v1.LeaseSpec(renew_time=format_micro_time(self._renewed))
            )
        ready = core_v1.NodeCondition(type="Ready", status="True")
        return core_v1.Node(metadata=meta, status=core_v1.NodeStatus(conditions=[ready]))


@pytest.fixture
def ill(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Daemons that are not well."""
    found: set[str] = set()

    async def problem(settings: Settings, daemon: str) -> str | None:
        return "it does not answer" if daemon in found else None

    monkeypatch.setattr(health, "problem", problem)
    monkeypatch.setattr(starting, "READY_SECONDS", 0.2)
    return found


def settings(prefix: Path, **more: Any) -> Settings:
    return Settings(prefix=str(prefix), node_name="n1", **more)


async def wait(chosen: Settings, renewed: datetime = BEGAN + timedelta(seconds=1)) -> None:
    await starting._wait_node(cast(Client, Server(renewed)), chosen, BEGAN)


async def test_a_machine_whose_daemons_are_well_is_up(tmp_path: Path, ill: set[str]) -> None:
    await wait(settings(tmp_path))


@pytest.mark.parametrize("daemon", ["agent", "netproxy", "dns"])
async def test_a_daemon_that_is_not_well_is_named_with_its_last_error_and_its_log(
    tmp_path: Path, ill: set[str], daemon: str
) -> None:
    chosen = settings(tmp_path, dns="alone")
    log = chosen.layout.logs / f"{daemon}.log"
    log.parent.mkdir(parents=True)
    log.write_text("2026-01-01 12:00:00,000 I all is well\n2026-01-01 12:00:01,000 E no such folder\nlater\n")
    ill.add(daemon)
    with pytest.raises(WherryError, match=rf"(?s){daemon} is not well.*it does not answer.*no such folder.*{log}"):
        await wait(chosen)


async def test_a_lease_from_before_is_no_sign_of_life(tmp_path: Path, ill: set[str]) -> None:
    with pytest.raises(WherryError, match="the lease of node n1 is not renewed"):
        await wait(settings(tmp_path), BEGAN - timedelta(seconds=1))


async def test_the_last_error_of_a_json_log_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        '{"ts":1.5,"caller":"a/b.py:1","msg":"it failed","err":"no \\"v\\":0 here"}',
        '{"ts":1.6,"caller":"a/b.py:2","msg":"it stops","v":0}',
    )

    async def last_lines(settings: Settings, daemon: str, count: int) -> list[str]:
        return list(lines)

    monkeypatch.setattr(daemons, "last_lines", last_lines)
    error = await health.failure(settings(tmp_path), "agent", "it does not run")
    assert "it failed" in str(error) and "it stops" not in str(error)
