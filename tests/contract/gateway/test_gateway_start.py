"""The start of the controllers with Gateways that exist: each is computed once before the first write."""

from __future__ import annotations

import asyncio

import pytest

from control.controllers import manager
from control.controllers.gateway import limits
from kube import step_limit
from kube.gateway.cluster import Cluster
from kube.gateway.computation import Result
from kube.gateway.objects import Gateway
from kube.gateway.steps import SHARES
from kube.object_names import key_of
from kube.step_limit import StepTooLong
from tests.contract.gateway.conftest import GROUP, GatewayCluster
from tests.contract.gateway.test_gateway_limits import named
from tests.support.control import ApiUnderTest
from tests.support.hollow import eventually, running


class Started:
    """Records who is charged with the computation of which Gateways, and how many there are in an iteration of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Exception] | None = None) -> None:
        self.charged: dict[str, str] = {}
        self.most = 0
        self._now = 0
        compute = Cluster.compute_listeners

        async def computed(cluster: Cluster, gateway: Gateway) -> Result:
            key, limit = key_of(gateway), step_limit._current.limit
            if key not in self.charged:
                self.charged[key] = limit.owner if limit is not None and limit.shares is SHARES else ""
                self._count()
            if broken and key in broken:
                raise broken.pop(key)
            return await compute(cluster, gateway)

        monkeypatch.setattr(Cluster, "compute_listeners", computed)

    def _count(self) -> None:
        if not self._now:
            asyncio.get_running_loop().call_soon(self._begin)
        self._now += 1
        self.most = max(self.most, self._now)

    def _begin(self) -> None:
        self._now = 0


async def existing(server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, *names: str) -> GatewayCluster:
    """Return a cluster in which Gateways exist, and no controllers run."""
    cluster = GatewayCluster(server)
    monkeypatch.setattr("control.controllers.gateway.controller.refuses", cluster.refuses)
    for name in ("infra", "apps"):
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    async with running(server.controllers(manager.ControllerConfig(gateway=True))):
        await cluster.node("n1", "10.0.0.1")

        async def installed() -> bool:
            return bool((await cluster.get(f"{GROUP}/gatewayclasses/wherry")).get("status"))

        await eventually(installed)
    await cluster.apply(*(named(name) for name in names), named("other", namespace="apps"))
    return cluster


async def test_gateways_are_computed_at_the_expense_of_their_namespaces_and_one_in_an_iteration(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"g{number}" for number in range(6)]
    cluster, started = await existing(server, monkeypatch, *names), Started(monkeypatch)
    async with running(server.controllers(manager.ControllerConfig(gateway=True)), cluster.nodes.run()):
        for name in names:
            await cluster.gateway_has(name, "Programmed", "True")
    assert started.charged == {**{f"infra/{name}": "infra" for name in names}, "apps/other": "apps"}
    assert started.most == 1


@pytest.mark.parametrize("error", [StepTooLong(), ValueError()], ids=["stopped", "broken"])
async def test_a_gateway_that_cannot_be_computed_delays_no_other(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    cluster, started = (
        await existing(server, monkeypatch, "web", "broken"),
        Started(monkeypatch, {"infra/broken": error}),
    )
    async with running(server.controllers(manager.ControllerConfig(gateway=True)), cluster.nodes.run()):
        for name in ("web", "broken"):
            await cluster.gateway_has(name, "Programmed", "True")
        await cluster.gateway_has("other", "Programmed", "True", namespace="apps")
    assert started.charged["infra/broken"] == "infra"


async def test_gateways_beyond_the_number_of_their_namespace_are_not_computed_at_the_start(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_GATEWAYS", 1)
    cluster, started = await existing(server, monkeypatch, "first", "waits"), Started(monkeypatch)
    async with running(server.controllers(manager.ControllerConfig(gateway=True)), cluster.nodes.run()):
        await cluster.gateway_has("first", "Programmed", "True")
        await cluster.gateway_has("waits", "Programmed", "False", "NoResources")
        await cluster.gateway_has("other", "Programmed", "True", namespace="apps")
    assert started.charged == {"infra/first": "infra", "infra/waits": "", "apps/other": "apps"}
