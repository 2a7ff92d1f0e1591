"""Quotas that limit tens of thousands of resources: whoever may write a quota chooses their number."""

from __future__ import annotations

from typing import Any

import pytest

from control.admission.resource_quota import ResourceQuota
from control.controllers.quota_counts import count_objects
from control.controllers.resource_quota import ResourceQuotaController
from kube.api import core_v1, meta_v1
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.clock import FakeClock, settle
from tests.support.cost import Lines
from tests.support.lookup import Objects, attributes
from tests.support.product_world import World
from tests.support.step_lines import longest_step
from tests.support.working import working

NAMES = {f"{kind}{i}": "5" for i in range(5000) for kind in ("count/x", "requests.example.com/r")}


def quota() -> core_v1.ResourceQuota:
    return core_v1.ResourceQuota(
        metadata=meta_v1.ObjectMeta(name="large", namespace="default"),
        spec=core_v1.ResourceQuotaSpec(hard={**NAMES, "configmaps": "9"}),
    )


async def test_a_namespace_is_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control.event_loop.pacing.SLICE_SECONDS", 0)
    api, controllers = World(), list[ResourceQuotaController]()

    def make(context: Any) -> ResourceQuotaController:
        controllers.append(ResourceQuotaController(context))
        return controllers[-1]

    async with working(api, FakeClock(), make):
        await settle(100)
        api.put(quota())
        await settle(10)
        longest = await longest_step(controllers[0].reconcile("default"))
    assert longest < len(NAMES)


async def test_names_that_mean_no_resource_are_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control.event_loop.pacing.SLICE_SECONDS", 0)
    api, failures = World(), dict[str, StatusError]()
    assert await longest_step(count_objects(api.client(), "default", NAMES, failures)) < len(NAMES)


class Stored(Objects):
    async def update_status(self, target: str, obj: Object) -> Object:
        """Accept a status without a copy of all its names."""
        return obj


async def test_an_object_is_charged_without_a_look_at_the_other_resources_of_a_quota() -> None:
    def plugin(names: dict[str, str]) -> ResourceQuota:
        found = {
            "metadata": {"name": "large", "namespace": "shop"},
            "spec": {"hard": names},
            "status": {"hard": names, "used": dict.fromkeys(names, "0")},
        }
        return ResourceQuota(Stored(("resourcequotas", found)))

    costs = []
    for names in ({"configmaps": "9"}, {**NAMES, "configmaps": "9"}):
        obj = {"metadata": {"name": "c", "namespace": "shop"}}
        quotas = plugin(names)
        with Lines() as lines:
            await quotas.validate(attributes("configmaps", obj=obj))
        costs.append(lines.count)
    assert costs[1] < 2 * costs[0]
