"""The rate of reconciliations of routes while nodes change all the time, and the nodes whose tunnels are accepted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kube.informer import Change
from netproxy.config import PodNetworkConfig, ProxyConfig
from netproxy.podnet import kernel_routes, route_controller
from netproxy.podnet.rtnetlink import RouteMonitor
from netproxy.podnet.tunnel_guard import TunnelGuard
from tests.support.clock import FakeClock, settle
from tests.support.services import node


class Nodes:
    """Changes of nodes, sent by the test."""

    send: Any

    def subscribe(self, subscriber: Any) -> None:
        self.send = subscriber

    async def wait_synced(self) -> None:
        pass


async def test_a_node_whose_address_changes_all_the_time_is_reconciled_twice_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, nodes, syncs = FakeClock(), Nodes(), list[float]()
    monkeypatch.setattr(RouteMonitor, "start", lambda self: None)
    settings = cast(
        ProxyConfig,
        SimpleNamespace(cluster_cidrs=("10.244.0.0/16",), masquerade_bit=14, pod_network=PodNetworkConfig()),
    )
    controller = route_controller.RouteController(settings, "own", cast(Any, nodes), clock)

    async def sync() -> int:
        syncs.append(clock.monotonic())
        controller._suspect = False
        return 0

    monkeypatch.setattr(controller, "sync", sync)
    task = asyncio.create_task(controller.run())
    await settle()
    await clock.advance(5)
    assert len(syncs) == 1
    began = clock.monotonic()

    def changed(number: int) -> Change[Any]:
        made = node("flapping", "10.244.3.0/24", f"192.0.2.{number % 250 + 1}")
        return Change("MODIFIED", made, made)

    for number in range(300):
        nodes.send(changed(number))
        await settle()
        await clock.advance(1 / 30)
    assert syncs[1] == began, "the first change is not delayed"
    assert 15 <= len(syncs) - 1 <= 21
    await clock.advance(5)
    nodes.send(changed(1))
    await settle()
    assert syncs[-1] == clock.monotonic()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("mode", "accepted"), [("vxlan", {"192.0.2.2"}), ("none", {"192.0.2.2", "10.244.9.9"})])
async def test_the_tunnel_accepts_no_address_of_a_pod_that_a_node_names_as_its_own(
    monkeypatch: pytest.MonkeyPatch, mode: str, accepted: set[str]
) -> None:
    """Without routes of Wherry's, nodes may have addresses of the cluster's range, but none of this node's pods."""
    guarded, nodes = list[set[str]](), Nodes()

    async def guard(self: object, known: Any, *_: object) -> bool:
        guarded.append({str(each) for each in known})
        return True

    async def nothing(*_: object) -> Any:
        return []

    monkeypatch.setattr(TunnelGuard, "set", guard)
    monkeypatch.setattr(RouteMonitor, "follow", lambda *_: None)
    for name in ("read_links", "ensure_tunnel", "read_routes", "change"):
        monkeypatch.setattr(kernel_routes, name, nothing)
    settings = SimpleNamespace(
        cluster_cidrs=("10.244.0.0/16",),
        families=(4,),
        masquerade_bit=14,
        pod_network=PodNetworkConfig(node_routes=mode),
    )
    controller = route_controller.RouteController(cast(ProxyConfig, settings), "own", cast(Any, nodes), FakeClock())
    for number, address in enumerate(("192.0.2.1", "192.0.2.2", "10.244.0.7", "10.244.9.9")):
        made = node(f"node-{number}" if number else "own", f"10.244.{number}.0/24", address)
        nodes.send(Change("ADDED", made, made))
    await controller.sync()
    assert guarded == [{"192.0.2.1", *accepted}]
